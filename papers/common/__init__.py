"""What the papers' experiments share: rows, pictures, the list of experiments."""
