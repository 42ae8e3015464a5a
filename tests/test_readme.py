"""What the README shows, works."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_example_in_python(tmp_path, monkeypatch, capsys):
    code = README.split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 20
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line[:7] for line in lines] == ["site 3 ", "site 4 "]
    shares = [float(line.split()[2]) for line in lines]
    assert min(shares) > 0.7
    assert max(shares) > 0.99
