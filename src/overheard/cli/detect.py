"""``overheard detect``: which clients hold the record, poison the model or ride for free?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from overheard import terminal
from overheard.cli.import_ import described
from overheard.cli.options import NEEDED, Describing, TrustCode, argument, option, taking

if TYPE_CHECKING:
    from overheard.evaluation.detection import Detection


@dataclass(frozen=True)
class Options:
    run: Path = argument("A recording of sums, or of single updates.")
    property_: str = option(
        "membership, poisoning or free-rider (membership-2, ...).", NEEDED, "--property"
    )
    attack: str = option("Attack to use (see `overheard attacks`).", "", show_default="the best")
    out: Path | None = option("Write the list as JSON; must not exist yet.", None)
    chart: Path | None = option("Draw the probabilities over the rounds (SVG).", None)
    score: bool = option("Say how right it was; the recording needs truth/.", False, "--score")
    description: Describing = None
    trust_code: TrustCode = False
    seed: int = option("Seed of every random choice.", 0)


@taking(Options)
def detect(options: Options) -> None:
    """Rank the clients by the probability that they have a property, from sums of updates alone.

    The adversary is the server of a federation with secure aggregation: it knows who took part in
    each round and the sum of their updates, and has records like the clients'. Of a recording that
    does not say what to look for, [property] in the TOML file of --with does.
    """
    import tempfile

    from overheard.evaluation.detection import detect as look
    from overheard.files import refuse_existing, write_durably
    from overheard.report.svg import suspects

    run, out, chart = options.run, options.out, options.chart
    for path in (out, chart):
        if path is not None:
            refuse_existing(path)
    with (
        tempfile.TemporaryDirectory(prefix="overheard-") as work,
        described(run, options.description, options.trust_code, Path(work), run) as recording,
        terminal.steps("listening with") as show,
    ):
        found = look(
            recording, options.property_, options.attack, options.seed, options.score, show
        )
    _print(found)
    for kind, path, text in (
        ("list", out, found.to_json),
        ("chart", chart, lambda: suspects(found)),
    ):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, [text().encode()])
            terminal.wrote(kind, path)
    terminal.emit(found.model_dump(mode="json"))


def _print(found: Detection) -> None:
    from overheard.report.words import what_of

    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    heads = ["client", "accused", "probability", "halfway", "rounds"]
    contribution = any(s.contribution is not None for s in found.suspects)
    rows = []
    for s in found.suspects:
        cells = [s.client, "yes" if s.accused else "", share(s.probability), share(s.halfway)]
        cells.append(f"{s.rounds} of {found.rounds}")
        if contribution:
            cells.append("" if s.contribution is None else f"{s.contribution:.3g}")
        rows.append((*cells, s.remark))
    numbers = ["probability", "halfway", "rounds", *(["contribution"] if contribution else [])]
    heads += (["contribution"] if contribution else []) + ["remark"]
    title = f"who {what_of(found.property)}, by {found.attack} ({found.rounds} rounds)"
    terminal.table(heads, rows, title, right=numbers)
    accused = [s.client for s in found.suspects if s.accused]
    told = ", ".join(accused) if accused else "nobody"
    terminal.say(f"- accused: {told}")
    for note in found.notes:
        terminal.say(f"- {note}")
    if found.score is not None:
        right = found.score
        terminal.say(
            f"- {right['found']} of {right['positives']} found, {right['false_alarms']} false "
            f"alarm(s), F1 {float(right['f1']):.2f}, Brier score {float(right['brier']):.3f}"
        )
