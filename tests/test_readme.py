"""What the README shows, works."""

from __future__ import annotations

from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_example_in_python(tmp_path, monkeypatch, capsys):
    start = README.index("    from overheard import")
    block = README[start : README.index("\n\n## ", start)]
    code = "\n".join(line[4:] for line in block.splitlines())
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all(line.startswith("site ") for line in lines)
    shares = [float(line.split()[2]) for line in lines]
    assert min(shares) > 0.7
    assert sum(s > 0.99 for s in shares) >= 4


@pytest.mark.parametrize(
    "name", ["exact_linear", "learned_map", "structured", "max_entropy", "candidate_decode"]
)
def test_attacks_named_there_exist(name):
    from overheard.attacks import all_attacks

    assert f"`{name}`" in README
    assert name in all_attacks()
