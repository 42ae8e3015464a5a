"""``python -m experiments``: list, run, check, and write the pages."""

from experiments.command import app
from overheard import cli

if __name__ == "__main__":
    cli.run(app, "python -m experiments")
