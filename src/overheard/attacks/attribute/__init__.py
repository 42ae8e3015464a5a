"""Which value does the sensitive attribute have, for every record?"""
