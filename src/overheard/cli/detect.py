"""``overheard detect``: which clients hold the record, poison the model or ride for free?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from overheard import terminal
from overheard.cli.describe import described
from overheard.cli.options import Describing, TrustCode
from overheard.files import refuse_existing

if TYPE_CHECKING:
    from overheard.evaluation.detection import Detection


def detect(
    run: Annotated[Path, Argument(help="A recording of sums, or of single updates.")],
    property_: Annotated[
        str, Option("--property", help="membership, poisoning or free-rider (membership-2, ...).")
    ],
    attack: Annotated[
        str, Option(help="Attack to use (see `overheard attacks`).", show_default="matched_filter")
    ] = "",
    out: Annotated[Path | None, Option(help="Write the list as JSON; must not exist yet.")] = None,
    chart: Annotated[
        Path | None, Option(help="Draw the probabilities over the rounds (SVG).")
    ] = None,
    score: Annotated[
        bool, Option("--score", help="Say how right it was; the recording needs truth/.")
    ] = False,
    description: Describing = None,
    trust_code: TrustCode = False,
    seed: Annotated[int, Option(help="Seed of every random choice.")] = 0,
) -> None:
    """Rank the clients by the probability that they have a property, from sums of updates alone.

    The adversary is the server of a federation with secure aggregation: it knows who took part in
    each round and the sum of their updates, and has records like the clients'. Of a recording that
    does not say what to look for, [property] in the TOML file of --with does.
    """
    from overheard.evaluation.detection import detect as look
    from overheard.report.html import write_new
    from overheard.report.svg import suspects

    for path in filter(None, (out, chart)):
        refuse_existing(path)
    with tempfile.TemporaryDirectory(prefix="overheard-") as work:
        recording = described(run, description, trust_code, Path(work), run)
        with terminal.steps("listening with") as show:
            found = look(recording, property_, attack, seed, score, show)
    _print(found)
    if out is not None:
        terminal.wrote("list", write_new(out, found.to_json()))
    if chart is not None:
        terminal.wrote("chart", write_new(chart, suspects(found)))
    terminal.emit(found.model_dump(mode="json"))


def _print(found: Detection) -> None:
    from overheard.report.words import what_of

    def number(value: float | None, form: str = ".3f") -> str:
        return "" if value is None else format(value, form)

    numbers = ["probability", "halfway", "rounds", "contribution"]
    rows = []
    for s in found.suspects:
        shares = number(s.probability), number(s.halfway), f"{s.rounds} of {found.rounds}"
        more = number(s.contribution, ".3g")
        rows.append((s.client, "yes" if s.accused else "", *shares, more, s.remark))
    title = f"who {what_of(found.property)}, by {found.attack} ({found.rounds} rounds)"
    terminal.table(["client", "accused", *numbers, "remark"], rows, title, right=numbers)
    accused = [s.client for s in found.suspects if s.accused]
    lines = [f"accused: {', '.join(accused) or 'nobody'}", *found.notes]
    if found.score is not None:
        right = found.score
        lines.append(
            f"{right['found']} of {right['positives']} found, {right['false_alarms']} false "
            f"alarm(s), F1 {float(right['f1']):.2f}, Brier score {float(right['brier']):.3f}"
        )
    terminal.say(*(f"- {line}" for line in lines))
