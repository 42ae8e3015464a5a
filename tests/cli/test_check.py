"""A new user's walk: from a hospital's own table to a decision; every command printed is run."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from overheard.data.file import role_of

pytestmark = pytest.mark.slow

HOSPITALS = ("Charité", "Köln Süd", "St. Jürgen", "Nürnberg")


@pytest.fixture
def own(workplace: Any) -> Any:
    """Four hospitals in one German table: ids, dates, gaps, accents, texts, a rare ward."""
    rng = np.random.default_rng(0)
    lines = ["Fall-ID;Hospital;aufgenommen;Alter;Geschlecht;raucht;Station;Notiz;Gewicht;Land;cost"]
    for k in range(200):
        age, man, smokes = rng.integers(20, 90), rng.integers(2), rng.random() < 0.3
        ward = ("Innere", "Chirurgie", "Pädiatrie")[rng.choice(3, p=(0.6, 0.3, 0.1))]
        weight = f"{rng.normal(75, 9):.1f}".replace(".", ",")
        cost = 1000 + 30 * age + 400 * man + 900 * smokes + rng.normal(0, 100)
        lines.append(
            f"F{k:04d};{HOSPITALS[k % 4]};2024-{1 + k % 12:02d}-{1 + k % 28:02d};{age};"
            f"{'mw'[man]};{('nein', 'ja')[smokes]};{'Urologie' if k == 7 else ward};"
            f"Bemerkung {k} zum Fall;{weight if k % 19 else ''};"
            f"DE;{f'{cost:.2f}'.replace('.', ',')}"
        )
    (workplace.path / "fälle 2024.csv").write_text("\n".join(lines), encoding="utf-8")
    return workplace


def printed(text: str) -> Iterator[list[str]]:
    """The commands that a report or an error prints, each once."""
    for command in dict.fromkeys(re.findall(r"`(overheard [^`]+)`", text)):
        yield shlex.split(command)[1:]


def test_from_a_table_to_a_decision(own: Any) -> None:
    checked = own.done("check", "fälle 2024.csv", "--out", "mein haus.toml")
    rows = {line.split("\t")[0]: line for line in checked.stdout.splitlines()}
    for name, what in (("Fall-ID", "id: left out"), ("aufgenommen", "date: left out"),
                       ("Notiz", "free text: left out"), ("Land", "constant: left out"),
                       ("Hospital", "whose record it is"), ("cost", "what the model predicts"),
                       ("Geschlecht", "secret"), ("Station", "Urologie")):  # fmt: skip
        assert what in rows[name]
    assert "200 rows, 11 of them left out because a value is missing" in checked.stdout
    assert re.search(r"an audit of all clients takes about \d+ (seconds|minutes)", checked.stdout)

    simulated = own.done(*shlex.split(rows[next(r for r in rows if "next" in r)])[2:])
    assert "189 records of 4 clients" in simulated.stdout

    config = own.path / "mein haus.toml"  # the one edit: what is allowed
    config.write_text(config.read_text(encoding="utf-8") + "\n[policy]\npeople_known = 0\n")
    audited = own.overheard(
        *("audit", "mein haus-run", "--out", "audit", "--policy", "mein haus.toml")
    )
    assert audited.returncode == 4, audited.stderr
    assert "\nrefuse: nobody known beyond 99%" in audited.stdout
    for ending in ("md", "pdf", "docx"):
        made = own.overheard("report", "audit/audit.json", "--out", f"r.{ending}")
        if ending == "docx":
            assert "ends in .html, .pdf, .md, .json" in made.stderr
        elif made.returncode:
            assert "Chromium" in made.stderr
    assert not (own.path / "r.docx").exists()
    text = (own.path / "r.md").read_text(encoding="utf-8")
    assert text.startswith("# REFUSE: An eavesdropper")
    commands = list(printed(text))
    assert {words[0] for words in commands} == {"audit", "sweep"}
    shutil.copytree(own.path / "mein haus-run/messages", own.path / "von anderswo/messages")
    for refused in (["init", "mein haus-run"], ["audit", "von anderswo", "--out", "x"]):
        commands += printed(own.overheard(*refused).stderr)
    assert len({words[0] for words in commands}) == 3
    for words in commands:
        ran = own.process(*words)
        assert ran.returncode == 0, f"{words}: {ran.stderr}"
        assert "failed" not in ran.stderr
    compared = own.overheard("frontier", "mein haus-run-sweep")
    assert re.search(r"^(dp_sgd \d|No setting measured is better)", compared.stdout, re.MULTILINE)
    own.done("report", "audit/audit.json", "--sweep", "mein haus-run-sweep", "--out", "again.md")
    other = own.overheard(
        *("report", "mein haus-run-secure-server/audit.json", "--out", "x.md"),
        *("--sweep", "mein haus-run-sweep"),
    )
    assert "sweep the same ones" in other.stderr


def test_an_id_or_a_date_is_an_input_only_if_somebody_says_so(own: Any) -> None:
    config = own.path / "own.toml"
    own.done("check", "fälle 2024.csv", "--out", "own.toml")
    text = config.read_text(encoding="utf-8").replace('"Notiz", ', "")
    for name, looks in (("Fall-ID", "an id"), ("aufgenommen", "a date")):
        config.write_text(text.replace(f'"{name}", ', ""), encoding="utf-8")
        refused = own.overheard("simulate", "own.toml", "--out", "r")
        assert refused.returncode == 1
        assert f"column '{name}' looks like {looks}" in refused.stderr
        stated = re.search(r"or (keep = \[.*?\])", refused.stderr)
        assert stated is not None
        line = stated[1].replace("'", '"')
        config.write_text(config.read_text("utf-8").replace("[model]", f"{line}\n[model]"), "utf-8")
        own.done("simulate", "own.toml", "--out", name)


@pytest.mark.parametrize(
    ("cells", "numbers", "what"),
    [
        ([str(k) for k in range(40)], True, "id"),
        ([str(3 * k) for k in range(40)], True, "number"),
        (["7"] * 40, True, "constant"),
        ([f"{k % 28 + 1}.3.2024" for k in range(40)], False, "date"),
        ([f"2024-03-{k % 28 + 1:02d} 10:15" for k in range(40)], False, "date"),
        ([f"a-{k}" for k in range(40)], False, "id"),
        ([f"some words {k}" for k in range(40)], False, "free text"),
        (["a", "b"] * 20, False, "category"),
    ],
)
def test_roles(cells: list[str], numbers: bool, what: str) -> None:
    assert role_of("c", cells, numbers).what == what
    if what == "category":
        assert role_of("c", [*cells, "rare"], numbers).rare == ("rare",)
