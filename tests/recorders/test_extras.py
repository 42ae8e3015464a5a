from __future__ import annotations

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("flower", "flwr", "overheard[flower]"), ("nvflare", "nvflare", "overheard[nvflare]")],
)
def test_a_missing_extra_is_named(
    module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"overheard.{module}", raising=False)
    monkeypatch.delitem(sys.modules, f"overheard.recorders.{module}", raising=False)

    class Absent:
        """Nothing of this package can be found, as if it were not installed."""

        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match="pip install") as raised:
        importlib.import_module(f"overheard.{module}")
    assert extra in str(raised.value)
