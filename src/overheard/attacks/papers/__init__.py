"""The papers' own attacks, a file a paper: each algorithm named and numbered as there."""
