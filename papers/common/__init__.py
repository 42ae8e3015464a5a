"""What the papers' experiments share: rows, provenance, pictures, the command."""
