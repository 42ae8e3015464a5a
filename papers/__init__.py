"""The papers' experiments, run again: claimed numbers beside measured ones."""
