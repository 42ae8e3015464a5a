"""Which clients have a property, when only the sums of the updates are heard (kerkouche2023)."""
