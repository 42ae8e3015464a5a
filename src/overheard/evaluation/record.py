"""The audit's record: what was asked, found and skipped, as typed data in ``audit.json``.

Version 3, and no other is read. The report is made from this and nothing else. Every share is in
[0, 1]; ``low`` and ``high`` bound a 95% confidence interval around ``value``; fields that do not
apply are null, never NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from overheard.errors import FixRecording
from overheard.evaluation.chance import CLOSE
from overheard.evaluation.decision import LEVELS, NOT_MEASURED, Level, decided
from overheard.foreign.files import read_bounded
from overheard.foreign.limits import check
from overheard.questions.question import Metric, Topic, all_metrics, grouped, metric_named
from overheard.transcript.kind import Knowledge
from overheard.transcript.knowledge import KINDS, Messages, SummedMessages, listens

VERSION = 3
MOST_SDS = 4.0
"""Standard errors by which all clients' messages together may be longer than their replays."""
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
        claimed = told.get("calibration")
        if claimed is not None and claimed.certain > told["n"]:
            raise ValueError(f"{claimed.certain} of {told['n']} records are known")
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


class Calibration(Part):
    """How sure the adversary is of its guesses, and whether it is right to be.

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
    calibration: Calibration | None = None
    evidence: float | None = None
    p_value: Probability | None = None
    reference: float | None = None
    level: Level = NOT_MEASURED
    why: str = ""

    @property
    def reliable(self) -> bool:
        """Whether it listened and does not flag its own answer."""
        return self.level != LEVELS[0] and not getattr(self, "flag")  # noqa: B009

    @property
    def strength(self) -> tuple[int, float]:
        """Orders what was learned, most last: by level, then by the margin over guessing; errors as
        shares of a guess's error, turned round."""
        metric, guess = self.measure, self.reference
        if metric.share:
            margin = self.value - (guess or 0.0) if self.lift is None else self.lift
        else:
            margin = -self.value / (guess if guess and metric.limit is None else 1.0)
        return LEVELS.index(self.level), margin


class Finding(_Compared):
    """What one attack learned about one client.

    The files in `questions` say how each metric is made. ``majority``: what the best constant guess
    gets; ``imputation``: what imputation from the other clients' records gets without listening;
    ``lift``: how much more the attack tells than the better of the two; ``bound``: what theory
    promises it at least. ``details`` holds the attack's own diagnostics and secondary
    metrics; ``flag`` in it says why the answer must not be relied on, ``overconfident`` that its
    probabilities do not hold against the truth.

    ``evidence``: bits by which its probabilities beat the best guess without listening, over all
    records. ``p_value``: of one test that nothing was learned beyond such guesses, not corrected
    for how many tests there are. What `overheard.evaluation.decision` makes of it: ``reference``,
    the best guess without listening; ``level``, what the finding shows; ``why`` it is no
    measurement, where it is none.
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
    def overconfident(self) -> str:
        """How its probabilities fail against the truth; empty if they do not."""
        return str(self.details.get("overconfident", ""))


class Pooled(_Compared):
    """One attack over all clients whose answers it does not flag, the interval clustered by client.

    ``flagged``: clients left out because their answer is flagged; where all are, the numbers are
    of all, and ``flag`` says why they must not be relied on.
    """

    clients: Count
    flagged: Count = 0
    flag: str = ""
    overconfident: str = ""

    @property
    def client(self) -> None:
        """It is about no single one."""


class Heard(_About):
    """What an attack learned about one client from its first ``rounds`` rounds alone."""

    client: str
    rounds: Annotated[int, Field(ge=1)]


class Climbed(_Measured):
    """What was learned about one client, or of all together (client ""), by an adversary who knew
    less of it (`evaluation.complete`).

    ``imputation``: by who knows as much and does not listen; ``confidence``: how often the attack
    itself expects to be right, where it says so; ``certain``: records known beyond 99%;
    ``seconds``: of a processor; ``flag``: why the answer must not be relied on.
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
    imputation: float | None = None
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
    ``by_chance`` from each other (0: nothing is random); where chance has a part all messages are
    ``longer`` than the replays by this part of themselves, with the standard error ``longer_sd``.
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
        """The factor that a rate must be off by to be noticed with 95%."""
        return 1 + self.least + 1.645 * self.sd


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
        kinds: tuple[type[Knowledge], ...] = (*KINDS, Messages, SummedMessages)
        said = {kind.name for kind in kinds if listens([kind])}
        return not said.isdisjoint(self.needs)


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
    pooled: tuple[Pooled, ...]
    skipped: tuple[Skipped, ...]
    heard: tuple[Heard, ...] = ()
    ladder: tuple[Climbed, ...] = ()
    failed: tuple[Failed, ...] = ()
    replays: tuple[Replay, ...] = ()
    notes: tuple[str, ...] = Field(default=())
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

    def strongest(self, secret: Secret) -> Finding | Pooled | None:
        """The finding where most was learned of a secret."""
        rows: Iterable[Finding | Pooled] = self.pooled if secret.client is None else self.findings
        key = (secret.topic, secret.attack, secret.client)
        return next((f for f in rows if (f.topic, f.attack, f.client) == key), None)

    def over_all(self, secret: Secret) -> Pooled | None:
        """The strongest finding over all clients."""
        key = (secret.topic, secret.pooled)
        return next((row for row in self.pooled if (row.topic, row.attack) == key), None)

    @property
    def everything(self) -> list[Finding | Pooled]:
        """What was found over all clients, then of each."""
        return [*self.pooled, *self.findings]

    @property
    def unfit(self) -> set[str]:
        """Clients that did not train as declared: what was not found about them shows nothing."""
        return {replay.client for replay in self.replays if replay.outcome == "does not fit"}

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
        by = grouped(parts, type)
        more = {n: (*getattr(self, n), *by.get(kind, ())) for kind, n in places.items()}
        return self.model_copy(update=more)


def first_wrong(error: ValidationError) -> str:
    """The first field that is wrong, and why."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'top level'}: {first['msg']}"


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
        raise FixRecording(f"{file}: is not an audit: {first_wrong(error)}") from error
    told: list[Finding | Pooled | Heard] = [*audit.findings, *audit.pooled, *audit.heard]
    secrets = {(part.question, part.attribute) for part in told}
    more = {c.attribute for c in audit.ladder}
    check("secrets", len(secrets | {("", name) for name in more}), file)
    return audit
