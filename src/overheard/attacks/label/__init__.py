"""Which labels do the client's records have, each by itself or on average by group?"""
