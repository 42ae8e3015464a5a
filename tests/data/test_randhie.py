"""The table of the demo: the file that comes with the package, and the people in it."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import numpy as np

from overheard.data import randhie


def test_the_file_is_the_one_that_the_text_beside_it_describes() -> None:
    with randhie.FILE.open("rb") as packed:
        content = gzip.decompress(packed.read())
    text = (Path(randhie.__file__).parent / "randhie.txt").read_text(encoding="utf-8")
    (stated,) = re.findall(r"\b[0-9a-f]{64}\b", text)
    assert hashlib.sha256(content).hexdigest() == stated
    assert f"({len(content):,} bytes)" in text
    names = content.partition(b"\n")[0].decode().split(",")
    assert len(names) == 45
    described = {line.split(" ")[0] for line in text.splitlines()}
    assert set(names) <= described
    assert "public domain" in text


def test_nobody_appears_twice_and_the_secrets_are_yes_or_no() -> None:
    found = randhie.load()
    records = found.records
    assert len(records) == 5831
    sites, people = np.unique(records["site"], return_counts=True)
    assert sites.tolist() == [f"site {k}" for k in range(1, 7)]
    assert people.sum() == 5831
    for name in randhie.SENSITIVE:
        assert set(np.unique(records[name])) == {0.0, 1.0}
    for name in randhie.PUBLIC:
        assert np.isfinite(records[name]).all()
    assert found.licence == "public domain"
