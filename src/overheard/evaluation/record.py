"""The audit's record: what was asked, found and skipped, as typed data in ``audit.json``.

Version 3, and no other is read. The report is made from this and nothing else. Every share is in
[0, 1]; ``low`` and ``high`` bound a 95% confidence interval around ``value``; fields that do not
apply are null, never NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from overheard.errors import FixRecording
from overheard.foreign.files import read_bounded
from overheard.foreign.limits import check
from overheard.questions.question import Metric, Topic, all_metrics, metric_named
from overheard.transcript.knowledge import LISTENING

VERSION = 3
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
        """What ``audit.json`` or a list of suspects holds."""
        return self.model_dump_json(indent=1) + "\n"


class _Measured(Part):
    """What has a value and an interval, which must be one."""

    @property
    def measure(self) -> Metric:
        """In which units the value is."""
        return metric_named(getattr(self, "metric"))  # noqa: B009  # where it has one

    @model_validator(mode="after")
    def _possible(self) -> Self:
        told = dict(self)
        value = told["right"] if "right" in told else told["value"]
        low, high = told["low"], told["high"]
        slack = 1e-9 * max(1.0, abs(value))
        if not low - slack <= value <= high + slack:
            raise ValueError(f"low {low:g}, value {value:g}, high {high:g}: not in this order")
        if "metric" not in told or self.measure.share:
            ends = (low, value, high, told.get("majority"), told.get("imputation"))
            if any(end is not None and not -slack <= end <= 1 + slack for end in ends):
                raise ValueError(f"a share outside 0 to 1 ({value:g}, {low:g} to {high:g})")
        sure = told.get("sure")
        if sure is not None and sure.certain > told["n"]:
            raise ValueError(f"{sure.certain} of {told['n']} records are known")
        return self


class Bin(_Measured):
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


class Sureness(Part):
    """How sure the adversary is of its guesses.

    ``bits``: gained per record over the client's own shares of the values; ``certain``: records
    whose value has a probability beyond 99%, of which ``certain_right`` are right; ``rows``: row
    numbers of such records in the client's table, from 0, only where the audit was asked for them.
    """

    bits: float
    certain: Count
    certain_right: Count
    bins: tuple[Bin, ...] = ()
    rows: tuple[Count, ...] = ()

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if self.certain_right > self.certain:
            raise ValueError(f"{self.certain_right} of {self.certain} are right")
        return self


class _About(_Measured):
    """What an attack learned of a secret: ``metric`` says what ``value`` is."""

    attack: str
    question: str
    attribute: str | None = None
    metric: MetricName
    value: float
    low: float
    high: float

    @property
    def topic(self) -> Topic:
        return Topic(self.question, self.attribute, self.metric)


class _Compared(_About):
    """Beside what is got without listening, and how sure that is; see `Finding`."""

    majority: float | None = None
    imputation: float | None = None
    lift: float | None = None
    n: Count
    sure: Sureness | None = None
    evidence: float | None = None
    p_value: Probability | None = None


class Finding(_Compared):
    """What one attack learned about one client.

    The files in `questions` say how each metric is made. Of shares, ``majority`` is the best
    constant guess. ``imputation``: what a stranger with the other clients' records gets without
    listening; ``lift``: how much more the attack tells than the better of the two; ``bound``: what
    theory promises it at least. ``details`` holds the attack's own diagnostics and secondary
    metrics; ``flag`` in it says why the answer must not be relied on, ``oversure`` that its
    probabilities do not hold against the truth.

    ``evidence``: bits by which its probabilities beat the best guess without listening, over all
    records. ``p_value``: of one test that nothing was learned beyond such guesses, not corrected
    for how many tests there are (see `overheard.evaluation.decision`).
    """

    paper: str
    threat: str
    client: str
    bound: float | None = None
    seconds: Seconds
    seed: int
    details: dict[str, float | int | str] = {}

    @property
    def flag(self) -> str:
        """Why the answer must not be relied on; empty if it may be."""
        return str(self.details.get("flag", ""))

    @property
    def oversure(self) -> str:
        """How its probabilities fail against the truth; empty if they do not."""
        return str(self.details.get("oversure", ""))


class Pooled(_Compared):
    """One attack over all clients whose answers it does not flag, the interval clustered by client.

    ``flagged``: clients left out because their answer is flagged; where all are, the numbers are
    of all, and ``flag`` says why they must not be relied on.
    """

    clients: Count
    flagged: Count = 0
    flag: str = ""
    oversure: str = ""

    @property
    def client(self) -> None:
        """It is about no single one."""


class Heard(_About):
    """What an attack learned about one client from its first ``rounds`` rounds alone."""

    client: str
    rounds: Annotated[int, Field(ge=1)]


class Climbed(_Measured):
    """What was learned about one client, or of all together (client ""), by an adversary who knew
    less of it (`evaluation.rungs`).

    ``stranger``: who knows as much and does not listen; ``confidence``: how often the attack itself
    expects to be right, where it says so; ``certain``: records known beyond 99%; ``seconds``: of a
    processor; ``flag``: why the answer must not be relied on.
    """

    rung: str
    words: str
    attack: str
    client: str
    attribute: str
    n: Count
    value: float
    low: float
    high: float
    majority: float | None = None
    stranger: float | None = None
    confidence: float | None = None
    certain: Count = 0
    certain_right: Count = 0
    seconds: Seconds
    flag: str = ""


class _Unanswered(Part):
    """An attack of which there is no answer about a client."""

    attack: str
    client: str
    attribute: str | None = None


class Skipped(_Unanswered):
    """An attack that was not run on a client, and why."""

    reason: str


class Failed(_Unanswered):
    """An attack that ended in an error of its own on a client: its answer is missing.

    ``error`` is the error's class, ``message`` its first line, ``where`` the file and line that
    raised it, ``doing`` which part of the audit it was, where not the audit of the whole recording.
    """

    error: str
    message: str = ""
    where: str = ""
    doing: str = ""

    @property
    def reason(self) -> str:
        doing = f"{self.doing}: " if self.doing else ""
        place = f" ({self.where})" if self.where else ""
        return f"{doing}{self.error}{': ' if self.message else ''}{self.message}{place}"


class Replay(Part):
    """Whether a client trained as declared: its true records, trained on again by the recipe.

    ``rounds``: those replayed; ``round``: the one that tells most. Its message is ``off`` of its
    update's length from the replay, where random orders and noise leave replays up to
    ``by_chance`` from each other (0: nothing is random). ``reason``: why it cannot be checked.
    """

    client: str
    outcome: Literal["fits", "does not fit", "cannot be checked"]
    rounds: tuple[Count, ...] = ()
    round: Count | None = None
    off: Annotated[float, Field(ge=0)] | None = None
    by_chance: Annotated[float, Field(ge=0)] | None = None
    reason: str = ""


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
        return not {kind.name for kind in LISTENING}.isdisjoint(self.needs)


class Run(Part):
    """The recording that was audited and the adversary who listened.

    ``damage``: what of the recording was damaged, or is missing, and hence left out; only where the
    audit was told to go on all the same.
    """

    recording: str
    data: str
    origin: str
    clients: tuple[str, ...]
    rounds: Count
    closed: bool
    damage: tuple[str, ...] = ()
    threat: str
    threat_words: str
    knows: tuple[str, ...]
    recipe: dict[str, Any]
    seed: int
    software: dict[str, str]


class Audit(Part):
    """The whole record."""

    version: Version = VERSION
    run: Run
    attacks: tuple[AttackInfo, ...]
    findings: tuple[Finding, ...]
    pooled: tuple[Pooled, ...]
    skipped: tuple[Skipped, ...]
    heard: tuple[Heard, ...] = ()
    ladder: tuple[Climbed, ...] = ()
    failed: tuple[Failed, ...] = ()
    replays: tuple[Replay, ...] = ()
    notes: tuple[str, ...] = Field(default=())

    @property
    def listening(self) -> frozenset[str]:
        """Names of what listened; the other findings are guesses to compare them with."""
        return frozenset(info.name for info in self.attacks if info.listens)

    @property
    def questions(self) -> dict[str, str]:
        """Which question each attack answers."""
        return {info.name: info.question for info in self.attacks}

    def adding(self, parts: Iterable[Heard | Climbed | Skipped | Failed]) -> Audit:
        """The same record and these parts, each where its kind belongs."""
        places = {Heard: "heard", Climbed: "ladder", Skipped: "skipped", Failed: "failed"}
        more = {name: list(getattr(self, name)) for name in places.values()}
        for part in parts:
            more[places[type(part)]].append(part)
        return self.model_copy(update={name: tuple(all_) for name, all_ in more.items()})


def unfit_clients(audit: Audit) -> set[str]:
    """Clients that did not train as declared: whatever was found about them supports nothing."""
    return {replay.client for replay in audit.replays if replay.outcome == "does not fit"}


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
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "top level"
        raise FixRecording(f"{file}: is not an audit: {where}: {first['msg']}") from error
    told: list[Finding | Pooled | Heard] = [*audit.findings, *audit.pooled, *audit.heard]
    secrets = {(part.question, part.attribute) for part in told}
    more = {c.attribute for c in audit.ladder}
    check("secrets", len(secrets | {("", name) for name in more}), file)
    return audit
