"""Pure functions shared by clients and by adversaries who replay them: models, losses, training."""
