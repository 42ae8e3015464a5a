"""What clients and server may do so that less is overheard; small pieces, joined by ``chain``."""
