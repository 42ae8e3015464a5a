"""The boundary: what was sent, what is known besides, who may see what. No torch here."""
