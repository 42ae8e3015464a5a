"""The five papers, table by table and figure by figure: a folder a paper, with what it claims."""
