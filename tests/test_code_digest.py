"""Which code stands behind which: read from imports, and deaf to words."""

from __future__ import annotations

from typing import Any

import pytest

from overheard import code_digest

MODULES = {
    "overheard": "from overheard.big import everything",
    "overheard.top": "from overheard.deep.attack import Attack\nimport overheard.side",
    "overheard.side": "def f():\n    from overheard.lazy import late\n    return late()",
    "overheard.lazy": "late = int",
    "overheard.big": "everything = 1",
    "overheard.typed": "if TYPE_CHECKING:\n    from overheard.big import everything\nelse:\n"
    "    from overheard.lazy import late\nimport numpy",
    "overheard.named": "SOURCES = {'lazy': 'overheard.lazy', 'no module': 'overheard.nothing'}",
    "overheard.deep": "from .attack import Attack",
    "overheard.deep.attack": "from overheard.big import everything\nclass Attack: ...\nphase = 1",
    "overheard.deep.uses": "from overheard.deep.attack import Attack, phase",
    "overheard.deep.near": "from ..lazy import late\nfrom . import attack",
    "outside": "",
    "outside.run": "from outside.parts import part as p\nfrom overheard.lazy import late\n"
    "import numpy",
    "outside.parts": "from overheard.typed import numpy\npart = 'outside.run'",
    "overheard.folder": "all_of_it = 'overheard.deep.*'",
}


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package of a few lines; returns what changes the source of one of its modules."""
    modules = dict(MODULES)

    def forget() -> None:
        for cached in (
            code_digest.sources,
            code_digest.imports,
            code_digest._bindings,
            code_digest.body,
        ):
            cached.cache_clear()

    def change(name: str, source: str | None, new_name: str = "") -> None:
        old = modules.pop(name)
        modules[new_name or name] = old if source is None else source
        for cached in (code_digest.imports, code_digest._bindings, code_digest.body):
            cached.cache_clear()

    def of(package: str = "overheard") -> dict[str, str]:
        return {name: text for name, text in modules.items() if name.split(".")[0] == package}

    forget()
    original = code_digest.sources
    monkeypatch.setattr(code_digest, "sources", of)
    yield change
    monkeypatch.setattr(code_digest, "sources", original)
    forget()


@pytest.mark.parametrize(
    ("module", "behind"),
    [
        ("lazy", ""),
        ("top", "deep.attack big side lazy"),  # inside functions too; not overheard/__init__
        ("typed", "lazy"),  # not what only a type checker reads, and nobody else's package
        ("named", "lazy"),  # a module's full name in a string is as good as an import
        ("deep", "deep.attack big"),
        ("folder", "deep.attack deep.uses deep.near big lazy"),
        ("deep.near", "lazy deep.attack big"),
    ],
)
def test_a_module_stands_on_what_it_imports(made_up: Any, module: str, behind: str) -> None:
    wanted = {f"overheard.{name}" for name in [module, *behind.split()]}
    assert code_digest.stands_on(f"overheard.{module}") == wanted


def test_names_and_modules_can_be_set_apart(made_up: Any) -> None:
    apart = {"overheard.deep.attack": frozenset({"Attack"})}
    alone = code_digest.stands_on("overheard.top", apart=apart)
    assert alone == {"overheard.top", "overheard.side", "overheard.lazy"}
    # who takes anything else from there depends on it after all
    assert "overheard.big" in code_digest.stands_on("overheard.deep.uses", apart=apart)
    assert "overheard.big" in code_digest.stands_on("overheard.deep.near", apart=apart)
    without = code_digest.stands_on("overheard.top", without={"overheard.side"})
    assert without == {"overheard.top", "overheard.deep.attack", "overheard.big"}


def test_a_package_beside_this_one_stands_on_it(made_up: Any) -> None:
    wanted = {"outside.run", "outside.parts", "overheard.lazy", "overheard.typed"}
    assert code_digest.stands_on("outside.run") == wanted


def code_of(module: str) -> str:
    return code_digest.code_of(code_digest.stands_on(module))


def test_a_moved_module_is_the_same_code(made_up: Any) -> None:
    before = code_of("outside.run")
    made_up("outside.parts", None, "outside.deep.pieces")
    assert code_of("outside.run") != before  # it is not found any more
    made_up("outside.run", MODULES["outside.run"].replace("outside.parts", "outside.deep.pieces"))
    assert code_of("outside.run") == before
    made_up("outside.run", "import numpy\nfrom overheard.lazy import late\n"
            "from outside.deep.pieces import part as p")  # fmt: skip
    assert code_of("outside.run") == before  # in another order
    made_up("outside.run", None, "overheard.run")
    made_up("outside.deep.pieces", None, "overheard.pieces")
    for name in ("overheard.run", "overheard.pieces"):
        text = code_digest.sources()[name]
        text = text.replace("outside.deep.pieces", "overheard.pieces")
        made_up(name, text.replace("outside.run", "overheard.run"))
    assert code_of("overheard.run") == before  # in another package, and so the name in the string


@pytest.mark.parametrize(
    "source",
    [
        "from outside.parts import part\nfrom overheard.lazy import late\nimport numpy",
        "from outside.parts import part as p\nfrom overheard.typed import late\nimport numpy",
        "from outside.parts import part as p\nfrom overheard.lazy import late\nimport scipy",
        "from outside.parts import other as p\nfrom overheard.lazy import late\nimport numpy",
        "from outside.parts import part as p\nfrom overheard.lazy import late\nimport numpy\n1",
    ],
)
def test_what_an_import_takes_counts(made_up: Any, source: str) -> None:
    """Though not where it is taken from, if what is there is the same."""
    modules = code_digest.stands_on("outside.run")
    before = code_digest.code_of(modules)
    made_up("outside.run", source)
    assert code_digest.stands_on("outside.run") == modules
    assert code_digest.code_of(modules) != before


def test_what_is_set_apart_does_not_count(made_up: Any) -> None:
    before = code_digest.code_of({"outside.run", "overheard.lazy"})
    made_up("outside.parts", "part = 'changed'")
    assert code_digest.code_of({"outside.run", "overheard.lazy"}) == before


def code_of_top() -> str:
    return code_digest.code_of(code_digest.stands_on("overheard.top"))


def test_a_digest_follows_the_code_that_it_is_about(made_up: Any) -> None:
    before = code_of_top()
    made_up("overheard.typed", "import overheard.big")
    assert code_of_top() == before
    made_up("overheard.lazy", "late = float")
    changed = code_of_top()
    assert changed != before
    made_up("overheard.lazy", '"""Words."""\n\n# more\nlate = float  # and more\n"""About late."""')
    assert code_of_top() == changed


def test_only_words_are_left_out() -> None:
    source = '''"""Öffnung."""
def f(x):  # why
    """What.

    More."""; y = "# no comment"
    é = """kept"""; "unused"
    return x + y

class A: "doc"
'''
    assert code_digest.bare(source).split("\n") == [
        "def f(x):",
        '    ; y = "# no comment"',
        '    é = """kept""";',
        "    return x + y",
        "class A:",
    ]


def test_every_source_of_ours_can_be_read() -> None:
    known = code_digest.sources()
    for package in ("overheard", "papers", "benchmarks"):
        for name in code_digest.sources(package):
            assert set(code_digest.imports(name)) <= {*known, *code_digest.sources(package)}
