"""Which model would the client have trained alone?"""
