"""Tables and images with a schema: what is sensitive, what is the target, what splits clients."""
