"""Every command and every line of Python in README and docs is tried.

A comment before a block of code says how it is tried; without one it is simply run:

- ``<!-- test: exit 1 -->``: it is expected to end with this code;
- ``<!-- test: parse -->``: it needs data or takes long; command, options and arguments are checked;
- ``<!-- test: makefile -->``: a target of the Makefile, which must be there;
- ``<!-- test: needs MODULE -->``: run where the module is installed, skipped elsewhere;
- ``<!-- test: elsewhere WHY -->``: not run here, for a reason that is said.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import runpy
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
from patience import ended

from experiments.command import app as experiments
from overheard.cli import app
from overheard.transcript import kind as kinds_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(
    r"(?:^[ ]*<!-- test: (?P<how>.*?) -->\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<body>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is, its lines and how to try it."""

    language: str
    title: str
    body: str
    how: str


def blocks(page: str) -> list[Block]:
    """Every fenced block of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        indent = len(match["indent"])
        body = "\n".join(line[indent:] for line in match["body"].splitlines())
        found.append(
            Block(match["language"], match["title"] or "", body + "\n", match["how"] or "")
        )
    return found


APPS = {"overheard": app, "experiments": experiments}
BACKGROUND = {"text", "yaml", "bibtex"}


def test_every_block_is_seen() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert text.count("```") == 2 * len(blocks(page)), page


def commands(block: Block) -> list[list[str]]:
    lines = block.body.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if shlex.split(line, comments=True)]


def parse(words: list[str]) -> None:
    """Command, options and arguments exist; nothing is run."""
    from overheard.terminal import take_flags

    if words[:2] == ["python", "-m"]:
        words = words[2:]
    command: Any = typer.main.get_command(APPS[words[0]])
    context = command.make_context(words[0], take_flags(words[1:]), resilient_parsing=False)
    rest = [*getattr(context, "_protected_args", []), *context.args]
    while isinstance(getattr(command, "commands", None), dict):
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, list(rest), parent=context)
        rest = [*getattr(context, "_protected_args", []), *context.args]


def run_example(script: Path) -> None:
    """As `python SCRIPT` does, without a second's start; what it registers is forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(script)])
        patch.setattr(sys, "path", [str(script.parent), *sys.path])
        patch.setattr(kinds_of, "_REGISTRY", dict(kinds_of._REGISTRY))
        runpy.run_path(str(script), run_name="__main__")


def run(words: list[str], workplace: Any) -> int:
    match words:
        case ["overheard", *rest]:
            done = workplace.overheard(*rest)
            if done.returncode:
                sys.stderr.write(done.stdout + done.stderr)
            return int(done.returncode)
        case ["python", script]:
            run_example(ROOT / script)
            return 0
    raise AssertionError(f"{shlex.join(words)}: say how this is to be tried")


def try_block(block: Block, place: Path, workplace: Any) -> None:
    kind, _, rest = block.how.partition(" ")
    if kind == "elsewhere":
        assert rest
        return
    if kind == "needs" and importlib.util.find_spec(rest) is None:
        return
    if block.title and block.language in ("toml", "csv", "python"):
        source = re.fullmatch(r'--8<-- "(.+)"\n', block.body)
        body = (ROOT / source[1]).read_text(encoding="utf-8") if source else block.body
        (place / block.title).write_text(body, encoding="utf-8")
        if block.language == "python":
            compile(body, block.title, "exec")
    elif block.language == "python":
        exec(compile(block.body, "a block of Python", "exec"), {"__name__": "example"})
    elif block.language == "sh":
        for words in commands(block):
            if kind == "parse":
                parse(words)
            elif kind == "makefile":
                assert words[0] == "make"
                dry = ["make", "--dry-run", "--no-print-directory", *words[1:]]
                assert ended(dry, ROOT).returncode == 0, words
            else:
                assert run(words, workplace) == (int(rest) if kind == "exit" else 0), words
    else:
        assert block.language in BACKGROUND, block  # a file has a title


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_a_page_can_be_followed(
    page: str, monkeypatch: Any, empty_workplace: Any, capsys: Any
) -> None:
    monkeypatch.chdir(empty_workplace.path)
    for block in blocks(page):
        try_block(block, empty_workplace.path, empty_workplace)
    if page == "README.md":
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        shares = [float(line[2]) for line in lines if line[:2] in (["site", "3"], ["site", "4"])]
        assert len(shares) == 2
        assert min(shares) > 0.7
        assert max(shares) > 0.99


@pytest.fixture
def empty_workplace(workplace: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with nothing in it, as a reader starts."""
    workplace.path = tmp_path_factory.mktemp("reader")
    return workplace


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_running_text_exist(page: str) -> None:
    """`overheard WORD` and `python -m experiments WORD` between backquotes name commands, and their
    options are known."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    known = {
        name: command
        for one in (app, experiments)
        for name, command in typer.main.get_command(one).commands.items()  # type: ignore[attr-defined]
    }
    asked = r"`(?:overheard|python -m experiments) ([a-z]+)((?: [^`]*)?)`"
    for words in re.findall(asked, text):
        name, rest = words
        assert name in known, (page, words)
        options = {o for p in known[name].params for o in (*p.opts, *p.secondary_opts)}
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", rest):
            assert option in options | {"--quiet", "--json", "--help"}, (page, words, option)


def test_every_command_is_shown_and_every_option_explained() -> None:
    """The reference is made from the help; each command also stands on a page."""
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"overheard {name}" in text, name
        for one in (command, *getattr(command, "commands", {}).values()):
            assert one.help, name
            assert all(getattr(p, "help", None) for p in one.params), name


@pytest.mark.parametrize("script", sorted(p.name for p in (ROOT / "examples").glob("*.py")))
def test_examples_run(script: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    run_example(ROOT / "examples" / script)
    said = capsys.readouterr().out
    if script == "own_module.py":
        assert float(said.split()[0]) >= 0.99
    elif script not in ("share_of_values.py", "label_smoothing.py"):  # which are to be imported
        assert said.strip()


def test_pictures_and_links_to_files_exist() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            if target == "assets/demo/report.html":  # made by the build
                continue
            assert ((ROOT / page).parent / target).exists(), (page, target)


def test_the_workflow_in_the_docs_is_yaml_with_known_commands() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (block,) = [b for b in blocks("docs/choose-a-defence.md") if b.language == "yaml"]
    steps = yaml.safe_load(block.body)["jobs"]["audit"]["steps"]
    ours = [shlex.split(s["run"]) for s in steps if s.get("run", "").startswith("overheard")]
    assert len(ours) == 4
    for words in ours:
        parse(words)


def test_docs_are_built_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip('mkdocs is not installed; pip install "overheard[docs]", or: make docs')
    if shutil.which("git") is None:
        pytest.skip("no git")
    words = ["mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path / "s")]
    done = ended([sys.executable, "-m", *words], ROOT, NO_MKDOCS_2_WARNING="1")
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert (tmp_path / "s" / "assets" / "demo" / "report.html").stat().st_size > 50_000
    api = (tmp_path / "s" / "api.html").read_text(encoding="utf-8")
    import overheard

    for name in overheard.__all__:
        assert f".{name}" in api
    page = (tmp_path / "s" / "add-an-attack.html").read_text(encoding="utf-8")
    assert "ShareOfValues" in page, "the example is not included"


def test_every_public_name_is_documented() -> None:
    """With its public methods; the pages of the API show nothing else."""
    import overheard

    for name in overheard.__all__:
        thing = getattr(overheard, name)
        assert (thing.__doc__ or "").strip(), name
        assert name in dir(overheard)
        if inspect.isclass(thing) and not getattr(thing, "_is_protocol", False):
            assert thing.__doc__ not in {base.__doc__ for base in thing.__mro__[1:]}, name
            for member, value in vars(thing).items():
                plain = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if inspect.isfunction(plain) and not member.startswith("_"):
                    assert plain.__doc__, f"{name}.{member}"
