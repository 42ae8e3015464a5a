"""What is measured, and what it is compared with."""
