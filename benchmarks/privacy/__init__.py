"""Membership games on the updates of the simulator, and which epsilon they show at least."""
