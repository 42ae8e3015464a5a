"""Who is suspected of a property: what ``overheard detect`` finds, as it is written down."""

from __future__ import annotations

from overheard.evaluation.record import Count, Part, Seconds


class Suspect(Part):
    """One client, asked whether it has a property.

    ``rounds``: in how many it took part; ``halfway``: the probability after half of the rounds;
    ``contribution``: how much its updates helped, where the attack can tell; ``remark``: why little
    can be said of it.
    """

    client: str
    probability: float
    accused: bool
    rounds: Count
    halfway: float | None = None
    contribution: float | None = None
    remark: str = ""


class Detection(Part):
    """Which clients have a property: the accused first, then by probability.

    ``curves``: each client's probability after so many rounds (``curve_rounds``). ``score`` only
    where it was asked for: how right this was.
    """

    version: int = 1
    recording: str
    property: str
    attack: str
    paper: str
    threat: str
    rounds: Count
    seconds: Seconds
    seed: int
    suspects: tuple[Suspect, ...]
    curve_rounds: tuple[Count, ...] = ()
    curves: dict[str, tuple[float, ...]] = {}
    diagnostics: dict[str, float | int | str] = {}
    score: dict[str, float | int | str] | None = None
    notes: tuple[str, ...] = ()
