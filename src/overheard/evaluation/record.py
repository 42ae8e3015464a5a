"""The audit's record: what was asked, found and skipped, as typed data in ``audit.json``.

Version 5, and no other is read. The report is made from this and nothing else. Every share is in
[0, 1]; ``low`` and ``high`` bound a 95% confidence interval around ``value``; fields that do not
apply are null, never NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from overheard.errors import FixRecording
from overheard.evaluation.decision import LEVELS, NOT_MEASURED, Level, decided
from overheard.evaluation.policy import Policy
from overheard.foreign.files import read_bounded
from overheard.foreign.limits import check
from overheard.foreign.shown import first_error
from overheard.questions.question import Metric, Topic, all_metrics, metric_named
from overheard.transcript.kind import kinds
from overheard.transcript.knowledge import listens

VERSION = 5
AUDIT = "audit.json"
CLOSE = 0.01
"""What chance does not explain of a message must be more than this part of its update."""
MOST_SDS = 3.3
"""Standard errors by which all clients' messages together may be longer than replays, nearer to
them than these are to each other, or off alike in all rounds: by chance 1 in 1,000 lies beyond."""
LARGEST = 1e300
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, le=1)]


def _known(name: str) -> str:
    if name not in all_metrics():
        known = ", ".join(all_metrics())
        raise ValueError(f"unknown metric {name!r}; known: {known}; install its question's package")
    return name


MetricName = Annotated[str, AfterValidator(_known)]


def _current(version: int) -> int:
    if version != VERSION:
        raise ValueError(
            f"an audit of version {version}, and this version of overheard reads {VERSION} only; "
            "audit again"
        )
    return version


Version = Annotated[int, AfterValidator(_current)]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordinary(self) -> Self:
        """Numbers that can be computed with, whoever wrote them down."""
        for name, value in self:
            numbers = value.values() if isinstance(value, dict) else (value,)
            if any(isinstance(n, int | float) and abs(n) > LARGEST for n in numbers):
                raise ValueError(f"{name}: a number beyond {LARGEST:g}")
        return self

    def to_json(self) -> str:
        """What ``audit.json`` holds."""
        return self.model_dump_json(indent=1) + "\n"


def _interval(value: float, low: float, high: float, shares: Sequence[float | None]) -> None:
    """Refuse what is no interval around a value, or shares that are none."""
    slack = 1e-9 * max(1.0, abs(value))
    if not low - slack <= value <= high + slack:
        raise ValueError(f"low {low:g}, value {value:g}, high {high:g}: not in this order")
    if any(share is not None and not -slack <= share <= 1 + slack for share in shares):
        raise ValueError(f"a share outside 0 to 1 ({value:g}, {low:g} to {high:g})")


class Bin(Part):
    """Records whose chosen value got a probability of at least ``least`` and below ``most``.

    The last bin is open below, beyond 99%, and closed above.

    ``confidence`` is the mean of those probabilities, ``right`` the share guessed right, with its
    interval: a calibrated attack has the two alike.
    """

    least: float
    most: float
    n: Count
    confidence: float
    right: float
    low: float
    high: float

    @model_validator(mode="after")
    def _possible(self) -> Self:
        _interval(self.right, self.low, self.high, (self.low, self.right, self.high))
        return self


class Calibration(Part):
    """How sure the adversary is of its guesses, and whether it is right to be.

    ``bits``: gained per record over the client's own shares of the values; ``certain``: records
    whose value has a probability beyond 99%, of which ``certain_right`` are right. ``known``: of
    the right ones, those whom neither the client's own shares nor imputation would give as much:
    the people whom the updates gave away.
    """

    bits: float
    certain: Count
    certain_right: Count
    known: Count = 0
    bins: tuple[Bin, ...] = ()

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if self.certain_right > self.certain:
            raise ValueError(f"{self.certain_right} of {self.certain} are right")
        if self.known > self.certain_right:
            raise ValueError(f"{self.known} people known of {self.certain_right} that are right")
        return self


class Suspect(Part):
    """One client, asked whether it has a property.

    ``rounds``: in how many it took part; ``contribution``: how much its updates helped, where the
    attack can tell; ``remark``: why little is known of it.
    """

    client: str
    probability: Probability
    accused: bool
    rounds: Count
    contribution: float | None = None
    remark: str = ""


class Finding(Part):
    """What one attack learned of a secret: of one client, or of all together (``client`` None).

    ``metric`` says what ``value`` is; the files in `questions` say how each is made. ``majority``:
    what the best constant guess gets; ``imputation``: what imputation from the other clients'
    records gets without listening; ``lift``: how much more the attack tells than the better of the
    two. ``details`` holds the attack's own diagnostics and secondary metrics; ``flag`` in it says
    why the answer must not be relied on, ``overconfident`` that its probabilities do not hold
    against the truth, ``bound`` what theory promises the attack at least.

    Of all together: ``clients``, over how many (the interval is clustered by client); ``flagged``,
    how many are left out because their answer is flagged. Where all are, the numbers are of all.

    Of less than the whole audit: ``rounds``, only the first so many were observed (0: all);
    ``rung``, whose knowledge of the client the adversary had (`evaluation.ladder`). ``knew``: the
    kinds of knowledge that the attack had in its view.

    ``suspects``: of a question that is asked of all clients at once, what it says of each.

    ``evidence``: bits by which its probabilities beat the best guess without listening, over all
    records. ``p_value``: of one test that nothing was learned beyond such guesses, not corrected
    for how many tests there are. What `overheard.evaluation.decision` makes of it: ``reference``,
    the best guess without listening; ``level``, what the finding shows (None: it is no part of the
    decision); ``why`` it is no measurement, where it is none.
    """

    attack: str
    paper: str = ""
    question: str
    attribute: str | None = None
    threat: str = ""
    client: str | None
    rounds: Count = 0
    rung: str = ""
    knew: tuple[str, ...] = ()
    clients: Count = 1
    flagged: Count = 0
    metric: MetricName
    value: float
    low: float
    high: float
    n: Count
    majority: float | None = None
    imputation: float | None = None
    lift: float | None = None
    calibration: Calibration | None = None
    suspects: tuple[Suspect, ...] = ()
    evidence: float | None = None
    p_value: Probability | None = None
    seconds: Seconds = 0.0
    seed: int = 0
    details: dict[str, float | int | str] = {}
    reference: float | None = None
    level: Level | None = None
    why: str = ""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        shares = (self.low, self.value, self.high, self.majority, self.imputation)
        _interval(self.value, self.low, self.high, shares if self.measure.share else ())
        if self.calibration is not None and self.calibration.certain > self.n:
            raise ValueError(f"{self.calibration.certain} of {self.n} records are known")
        return self

    @property
    def measure(self) -> Metric:
        """In which units the value is."""
        return metric_named(self.metric)

    @property
    def topic(self) -> Topic:
        return Topic(self.question, self.attribute, self.metric)

    @property
    def key(self) -> tuple[str, Topic, str | None]:
        """Whose finding it is, about what, of whom."""
        return self.attack, self.topic, self.client

    @property
    def flag(self) -> str:
        """Why the answer must not be relied on; empty if it may be."""
        return str(self.details.get("flag", ""))

    @property
    def overconfident(self) -> str:
        """How its probabilities fail against the truth; empty if they do not."""
        return str(self.details.get("overconfident", ""))

    @property
    def reliable(self) -> bool:
        """Whether it listened and does not flag its own answer."""
        return self.level != LEVELS[0] and not self.flag

    @property
    def strength(self) -> tuple[int, float]:
        """Orders what was learned, most last: by level, then by the margin over guessing; errors as
        shares of a guess's error, turned round."""
        metric, guess = self.measure, self.reference
        if metric.share:
            margin = self.value - (guess or 0.0) if self.lift is None else self.lift
        else:
            margin = -self.value / (guess if guess and metric.limit is None else 1.0)
        return LEVELS.index(self.level or NOT_MEASURED), margin


class _Unanswered(Part):
    """An attack of which there is no answer about a client, and why; ``doing``: which part of the
    audit it was, where not the audit of the whole recording."""

    attack: str
    client: str
    attribute: str | None = None
    reason: str
    doing: str = ""


class Skipped(_Unanswered):
    """An attack that was not run on a client."""


class Failed(_Unanswered):
    """An attack that ended in an error of its own on a client: its answer is missing.

    ``error`` is the error's class; the reason has it and ``doing``, the error's first line and
    where it was raised.
    """

    error: str


class Replay(Part):
    """Whether a client trained as declared: its true records, trained on again by the recipe.

    ``rounds``: those replayed; ``round``: the one that tells most. Its message is ``off`` of its
    update's length from the replay, where random orders and noise leave replays up to
    ``by_chance`` from each other (0: nothing is random); where something is random all messages are
    ``longer`` than the replays by this part of themselves, with the standard error ``longer_sd``.
    ``scores``: in standard deviations of the replays, how much nearer to the mean replay messages
    are than replays, how much nearer to what a full batch leads to, and how much more alike they
    are off in all rounds.
    ``reason``: why it cannot be checked, or what does not fit.
    """

    client: str
    outcome: Literal["fits", "does not fit", "cannot be checked"]
    rounds: tuple[Count, ...] = ()
    round: Count | None = None
    off: Annotated[float, Field(ge=0)] | None = None
    by_chance: Annotated[float, Field(ge=0)] | None = None
    longer: float | None = None
    longer_sd: Annotated[float, Field(gt=0)] | None = None
    scores: tuple[float, ...] = ()
    reason: str = ""


class PooledRate(NamedTuple):
    """By which part of themselves the messages of so many clients are longer than the declared rate
    leads to, and its standard error."""

    clients: int
    off: float
    sd: float

    @property
    def least(self) -> float:
        """What it must be off by to be called wrong."""
        return max(MOST_SDS * self.sd, CLOSE)

    @property
    def noticed(self) -> float:
        """The factor that a rate must be off by, upwards or downwards, to be noticed with 95%;
        infinity if no rate would be. Replays at a rate ``f`` times as high are ``f`` times as long:
        what messages are longer by is then ``1 / f - 1`` of them."""
        return 1 / max(1 - self.least - 1.645 * self.sd, 1e-300)


def pooled_rate(replays: Iterable[Replay]) -> PooledRate | None:
    """Of all clients that fit, weighted by their certainty; None where nothing is random."""
    fits = [(r.longer or 0.0, r.longer_sd) for r in replays if r.outcome == "fits"]
    weighted = [(longer, sd**-2.0) for longer, sd in fits if sd]
    total = sum(weight for _, weight in weighted)
    if not total:
        return None
    off = sum(longer * weight for longer, weight in weighted) / total
    return PooledRate(len(weighted), off, total**-0.5)


class AttackInfo(Part):
    name: str
    question: str
    paper: str
    needs: tuple[str, ...]
    words: str
    equation: str = ""

    @property
    def listens(self) -> bool:
        """Whether it is an attack: it needs what clients say. The others are guesses."""
        observed = {kind.name for kind in kinds().values() if listens([kind])}
        return not observed.isdisjoint(self.needs)


class Run(Part):
    """The recording that was audited and the adversary who listened."""

    recording: str
    data: str
    origin: str
    clients: tuple[str, ...]
    rounds: Count
    closed: bool
    threat: str
    threat_words: str
    knows: tuple[str, ...]
    recipe: dict[str, Any]
    seed: int
    software: dict[str, str]


Keys = tuple[str, ...]


def leaves(tables: Mapping[str, Any], at: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Every value in tables within tables, with the keys on the way to it."""
    for name, value in tables.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*at, name))
        else:
            yield (*at, name), value


class Promise(Part):
    """The differential privacy that the client promised least has: ``epsilon`` for the presence of
    a record and the larger one for its values (``changed``), at ``delta``; None: none."""

    client: str
    epsilon: float | None
    changed: float | None = None
    delta: float
    words: str


class Secret(Part):
    """One thing that was asked about every client, and the audit's answer.

    ``attack`` and ``client``: whose finding is the strongest, whatever its level (client None: over
    all together; attack "": there is none); ``pooled``: the strongest attack over all clients. Of
    ``clients``, so many are ``exposed``; ``doubts``: those of which nothing was measured, and why.
    """

    question: str
    attribute: str | None
    metric: str
    level: Level
    attack: str
    client: str | None
    pooled: str
    clients: Count
    exposed: Count
    doubts: dict[str, str]

    @property
    def topic(self) -> Topic:
        return Topic(self.question, self.attribute, self.metric)


class Audit(Part):
    """The whole record. Levels, ``secrets`` and ``level`` always are what `evaluation.decision`
    makes of the rest, also of a file that says something else."""

    version: Version = VERSION
    run: Run
    attacks: tuple[AttackInfo, ...]
    findings: tuple[Finding, ...]
    pooled: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    curves: tuple[Finding, ...] = ()
    ladder: tuple[Finding, ...] = ()
    failed: tuple[Failed, ...] = ()
    replays: tuple[Replay, ...] = ()
    notes: tuple[str, ...] = Field(default=())
    promise: Promise | None = None
    policy: Policy | None = None
    secrets: tuple[Secret, ...] = ()
    level: Level = NOT_MEASURED

    @model_validator(mode="after")
    def _levels(self) -> Self:
        return self._decided()

    def _decided(self) -> Self:
        made = decided(self)
        made["secrets"] = tuple(Secret.model_construct(**secret) for secret in made["secrets"])
        for name, value in made.items():
            object.__setattr__(self, name, value)
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """With other parts, and decided anew."""
        return super().model_copy(update=update, deep=deep)._decided()

    def strongest(self, secret: Secret) -> Finding | None:
        """The finding where most was learned of a secret."""
        key = (secret.attack, secret.topic, secret.client)
        return next((f for f in self.everything if f.key == key), None)

    def over_all(self, secret: Secret) -> Finding | None:
        """The strongest finding over all clients."""
        key = (secret.pooled, secret.topic, None)
        return next((f for f in self.pooled if f.key == key), None)

    @property
    def everything(self) -> tuple[Finding, ...]:
        """What was found over all clients, then of each."""
        return *self.pooled, *self.findings

    @property
    def unfit(self) -> set[str]:
        """Clients that did not train as declared: what was not found about them shows nothing."""
        return {replay.client for replay in self.replays if replay.outcome == "does not fit"}

    @property
    def questions(self) -> dict[str, str]:
        """Which question each attack answers."""
        return {info.name: info.question for info in self.attacks}

    @property
    def listening(self) -> frozenset[str]:
        """Names of what listened; the other findings are guesses to compare them with."""
        return frozenset(info.name for info in self.attacks if info.listens)


def few(names: Sequence[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def read_audit(path: str | Path) -> Audit:
    """Read ``audit.json``; an error names the first field that is wrong."""
    file = Path(path)
    try:
        raw = read_bounded(file, "json_bytes", follow=True)
    except FixRecording as error:
        raise FixRecording(f"{error}; `overheard audit` writes audit.json") from error
    check("json_values", sum(raw.count(mark) for mark in (b"[", b"{", b",")), file)
    try:
        audit = Audit.model_validate_json(raw)
    except ValidationError as error:
        raise FixRecording(f"{file}: is not an audit: {first_error(error)}") from error
    found = (*audit.everything, *audit.curves, *audit.ladder)
    check("secrets", len({(f.question, f.attribute) for f in found}), file)
    return audit
