"""How much was learned, how sure that is, and what a guess would have got."""
