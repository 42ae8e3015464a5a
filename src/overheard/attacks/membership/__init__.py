"""Which records of a pool of candidates are the client's?"""
