"""Which setting leaks how much, at what price? A grid of federations, recorded and audited."""
