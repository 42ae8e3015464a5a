"""``python -m benchmarks``: time this program against its opponents."""

from benchmarks.command import app
from overheard.cli import run

if __name__ == "__main__":
    run(app, "python -m benchmarks")
