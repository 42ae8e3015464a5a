"""``python -m papers WORDS``: overheard's commands where the papers' data sources are known.

``python -m papers fetch NAME`` brings a source's files; `data list` says which there are.
"""

from __future__ import annotations

import sys

from overheard import terminal
from overheard.cli import main
from overheard.data.source import source_named
from overheard.errors import OverheardError
from papers.data.files import fetch

if __name__ == "__main__":
    if sys.argv[1:2] != ["fetch"] or len(sys.argv) != 3:
        main()
    try:
        terminal.say(fetch(source_named(sys.argv[2])))
    except OverheardError as error:
        sys.exit(f"error: {error}")
