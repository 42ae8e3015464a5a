"""kerkouche2023 (PROLIN): which clients have a property, when only sums of updates are observed.

Figures 3 to 5 and 8 compare BASELINE, OLS, REG, PROLIN and ours on the same recordings, round by
round; figures 2, 6 and 7 look into the paper's detectors there. A federation is recorded once; in
the membership figures four target records share it, each with five holders of its own, and so do
four records that nobody holds, which tell false alarms. The paper's methods are asked about the
first target. F1 is over the clients of a federation; ours names the set of the greatest expected
F1, the others name who is above one half. All of them know that somebody has the property, as in
the paper; of records that nobody holds ours does not, nor of any in the federations of small models
(logistic regression, 20 clients of 20 records), where it is asked as an audit asks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.papers.scoring import printed
from experiments.recordings import federation, kept, recorded
from experiments.runner import Cell, Experiment, Values, cell
from overheard.attacks.papers import kerkouche2023 as paper
from overheard.attacks.property import Adversary, adversary_of, collect, outputs
from overheard.decoding.client_sets import Options, posterior
from overheard.questions.property import answers_of, f1
from overheard.randomness import stream
from overheard.transcript.kind import RoundSum
from overheard.transcript.knowledge import Sums
from overheard.transcript.store import Recording
from overheard.transcript.target import client_property
from overheard.transcript.threat import SECURE_SERVER
from overheard.transcript.view import observe

OURS = "matched_filter"
THEIRS = {
    "BASELINE": paper.baseline, "OLS": paper.ols, "REG": paper.reg, "PROLIN": paper.prolin,
}  # fmt: skip
FIRST_SEED = 300
"""Of the figures' federations; settings were chosen on federations of other seeds."""
EVERY = 10
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class World:
    """A source of images and the paper's settings for it (Table 2)."""

    source: str
    auxiliary: int
    learning_rate: float
    batch: int
    sizes: tuple[int, ...]
    positives: int = 5
    targets: int = 4
    decoys: int = 4
    model: str = "lenet"


WORLDS = {
    "mnist": World("mnist", 6000, 0.01, 10, (10, 20, 30)),
    "fashion": World("fashion", 6000, 0.01, 10, (10, 20, 30)),
    "cifar10": World("cifar10", 5000, 0.1, 25, (25, 50)),
    "digits": World("digits_images", 1000, 0.1, 10, (10,), positives=4, targets=1, decoys=0),
}
SMALL = ("digits_images", "mnist", "fashion")
WORLDS |= {f"{s}, logistic": World(s, 1000, 0.1, 10, (20,), 4, 1, 4, "logistic") for s in SMALL}


@dataclass(frozen=True)
class Setting:
    """One panel of a figure. ``shadows`` updates a round train each of the paper's detectors, to
    round ``until``."""

    dataset: str
    kind: str
    size: int
    clients: int = 50
    rounds: int = 300
    shadows: int = 0
    until: int = 150

    @property
    def world(self) -> World:
        return WORLDS[self.dataset]

    @property
    def decoys(self) -> int:
        return self.world.decoys if self.kind == "membership" else 0

    def config(self, seed: int) -> dict[str, Any]:
        """The federation as the simulator takes it."""
        options = {
            "seed": seed,
            "clients": self.clients,
            "records": self.size,
            "auxiliary": self.world.auxiliary,
        }
        training = {
            "rounds": self.rounds,
            "learning_rate": self.world.learning_rate,
            "batch_size": self.world.batch,
            "participation": 0.2,
        }
        kinds = {"targets": self.world.targets} if self.kind == "membership" else {}
        return federation(seed, self.world.source, self.world.model, training, options) | {
            "property": {"kind": self.kind, "positives": self.world.positives, **kinds},
            "defence": [{"name": "secure_sum"}],
        }


def figure(kind: str, one: Cell) -> Values:
    """One method in one federation: its curves over the rounds."""
    setting, seed = Setting(kind=kind, **dict(one.setting)), FIRST_SEED + one.seed  # type: ignore[arg-type]
    with recorded(setting.config(seed), shared=True) as recording:
        at = asked_in(recording, setting)
        last = len(at.sums) if one.method == OURS else min(len(at.sums), setting.until)
        rounds = sorted({*range(EVERY, last + 1, EVERY), last})
        if one.method == OURS:
            return ours(setting, seed, at, rounds)
        return theirs(one.method, setting, seed, at, rounds)


class Asked(NamedTuple):
    """Sums, the adversary with all targets at once, the decoys last, and who holds each."""

    sums: Sums
    adversary: Adversary
    answers: Sequence[Flags]


def ours(setting: Setting, seed: int, at: Asked, rounds: Sequence[int]) -> Values:
    """All targets from one filter a round: F1, Brier score, and who is named on decoys."""
    begin = time.process_time()
    read = collect(outputs(at.adversary, at.sums, stream(seed, "ours")))
    seconds = (time.process_time() - begin) / len(at.sums)
    targets = len(at.answers) - setting.decoys
    # that somebody has it, as the paper's methods; or not
    knows = (Options(nobody=0) if setting.world.model == "lenet" else Options(), Options())
    found = [
        {t: posterior(read.evidence(t, n), knows[n >= targets]) for t in rounds}
        for n in range(len(at.answers))
    ]
    asked = list(zip(found, at.answers, strict=True))

    def mean(measure: Any, some: Sequence[Any]) -> dict[str, float]:
        return {str(t): float(np.mean([measure(g[t], a) for g, a in some])) for t in rounds}

    scores = mean(lambda g, a: f1(g.chosen, a), asked[:targets])
    values: dict[str, Any] = {
        "F1": scores,
        "F1, the paper's methods' target": mean(lambda g, a: f1(g.chosen, a), asked[:1]),
        "Brier score": mean(lambda g, a: ((g.probabilities - a) ** 2).mean(), asked[:targets]),
        "CPU seconds of a round": seconds,
        "effect of the first target": read.size(rounds[-1], 0),
    }
    if setting.decoys:
        values["false alarms"] = mean(lambda g, a: g.accused.sum(), asked[targets:])
    return values | peaks(scores)


def theirs(method: str, setting: Setting, seed: int, at: Asked, rounds: Sequence[int]) -> Values:
    """One of the paper's methods; all four share the detectors, which are kept."""
    detected, seconds = detectors(setting, seed, at)
    chosen = {t: paper.above_half(THEIRS[method](detected.first(t))) for t in rounds}
    scores = {str(t): f1(flags, at.answers[0]) for t, flags in chosen.items()}
    return {"F1": scores, "CPU seconds of a round": seconds, **peaks(scores)}


def detectors(setting: Setting, seed: int, at: Asked) -> tuple[paper.Detected, float]:
    """All rounds' detectors of the first target, each kept as it is made, and the mean CPU seconds.

    With one local step ascent is minus descent, as inversion is: both share their detectors where
    they share their models.
    """
    sums, all_, _ = at
    alone = replace(all_, targets=all_.targets and all_.targets.take(slice(0, 1)))
    options, seconds = paper.Options(setting.shadows, seed=seed), list[float]()
    negated = "negated" if alone.steps == 1 else alone.behaviour
    asked = negated if alone.targets is None else alone.targets.inputs.tobytes()

    def train(one: RoundSum) -> paper.Detector:
        def made() -> dict[str, NDArray[Any]]:
            begin = time.process_time()
            parts = paper.detector(alone, one, options)._asdict()
            return {**parts, "seconds": np.array(time.process_time() - begin)}

        what = (setting.dataset, setting.size, options, asked, one.number, one.sent.tobytes())
        arrays = kept(what, made)
        seconds.append(float(arrays.pop("seconds")))
        return paper.Detector(**arrays)

    return paper.detect(map(train, islice(sums, setting.until)), sums), float(np.mean(seconds))


def looked_into(one: Cell) -> Values:
    """Figures 2, 6 and 7: the detectors of the federations of figures 3 to 5, by round.

    The norm is that of the weights on standardised updates, in units of which appendix B's bound
    compares them.
    """
    setting, seed = Setting(**dict(one.setting)), FIRST_SEED + one.seed  # type: ignore[arg-type]
    with recorded(setting.config(seed), shared=True) as recording:
        found = detectors(setting, seed, asked_in(recording, setting))[0].detectors
    sd = np.sqrt((found.variance_with + found.variance_without) / 2)
    numbers = {
        OVL: found.overlap,
        NORM: found.length,
        "distance of f+ and f-, in sd": (found.mean_with - found.mean_without) / sd,
    }
    rounds = sorted({1, *range(EVERY, len(found.overlap) + 1, EVERY)})
    return {m: {str(t): float(x[t - 1]) for t in rounds} for m, x in numbers.items()}


def appendix_b(one: Cell) -> Values:
    """Errors of least squares on whole updates and on one feature, with noise of equal variance:
    the first is |alpha| times the second."""
    rng, rounds, clients, size = stream(one.seed, "appendix B"), 300, 50, 200
    there = np.array([rng.permutation(clients) < clients // 5 for _ in range(rounds)]) * 1.0
    alpha = rng.normal(size=size)
    alpha *= one["norm"] / np.linalg.norm(alpha)
    inverse = np.linalg.pinv(there)
    whole = np.abs(inverse @ rng.normal(size=(rounds, size)) @ alpha).sum()
    return {TIMES: float(whole / np.abs(inverse @ rng.normal(size=rounds)).sum())}


def peaks(scores: dict[str, float]) -> dict[str, float]:
    """What section 6.4.2 compares: the highest point and where it is, the mean over the rounds
    ("more accurate on average") and the standard deviation over them ("more stable")."""
    best = max(scores, key=lambda t: scores[t])
    heights = list(scores.values())
    return {
        BEST: scores[best],
        BEST_ROUND: float(best),
        "mean F1": float(np.mean(heights)),
        "sd of F1": float(np.std(heights)),
    }


def asked_in(recording: Recording, setting: Setting) -> Asked:
    """What is asked of a recording."""
    columns = [t.removeprefix("property.") for t in recording.targets if t.startswith("property.")]
    views = [observe(recording, SECURE_SERVER, client_property(c), "") for c in columns]
    sums, adversary = views[0].know(Sums), adversary_of(views[0])
    answers = [
        answers_of(recording.truth("Property", client_property(c).key), sums.clients)
        for c in columns
    ]
    if adversary.targets is None:
        return Asked(sums, adversary, answers)
    decoys = adversary.auxiliary.take(slice(0, setting.decoys))
    all_targets = (*(adversary_of(view).targets for view in views), decoys)
    first, *others = [known for known in all_targets if known is not None]
    together = first.joined(*others)
    rest = adversary.auxiliary.take(slice(setting.decoys, None))
    nobody = np.zeros(len(sums.clients), dtype=bool)
    adversary = replace(adversary, targets=together, auxiliary=rest)
    return Asked(sums, adversary, [*answers, *[nobody] * setting.decoys])


# ------------------------------------------------------------------------------ cells and claims

BEST, BEST_ROUND = "best F1", "round of the best"
OVL, NORM = "OVL", "norm of the weights"
TIMES = "error with whole updates / with one feature"
CLAIMS = printed("kerkouche2023")["claims"]


def claimed(kind: str, one: Cell) -> Values:
    name = f"{one['dataset']} {kind} {one['size']}"
    name += f" {one['clients']}" * (one["clients"] != 50)
    return next((c[one.method] for c in CLAIMS if name in c["of"] and one.method in c), {})


def cells(clients: Sequence[int], all_sizes: bool) -> list[Cell]:
    """Every panel in three federations, and a small one on digits for the quick form.

    The paper's detectors have 12,000 shadow updates a round (10,000 on CIFAR-10): ten seconds of a
    processor. With 50 clients the smallest size of each data set has as many, the others 1,200; all
    of them end at round 150.
    """
    digits: dict[str, Any] = {"dataset": "digits", "size": 10, "clients": 20, "rounds": 60}
    made = [cell(OURS, cost=30, quick=True, **digits)] if all_sizes else []
    made += [cell(m, cost=60, quick=True, **digits, shadows=200) for m in THEIRS if all_sizes]
    panels = [
        (name, size)
        for name in ("mnist", "fashion", "cifar10")
        for size in WORLDS[name].sizes[: None if all_sizes else 1]
    ]
    for (name, size), count, seed in (
        (p, count, seed) for p in panels for count in clients for seed in range(3)
    ):
        panel: dict[str, Any] = {"dataset": name, "size": size, "clients": count}
        made.append(cell(OURS, seed, 400, **panel))
        shadows = shadows_of(name, size) if all_sizes else 1200
        share = 150 * (2 + shadows / 1500) / len(THEIRS)  # of the detectors, which all of them use
        made += [cell(m, seed, share, **panel, shadows=shadows) for m in THEIRS]
    return made


def shadows_of(name: str, size: int) -> int:
    """As many as in the paper where a client has fewest records, else 1,200 a round."""
    return 2 * WORLDS[name].auxiliary if size == WORLDS[name].sizes[0] else 1200


def inside(*panels: tuple[str, str, int]) -> list[Cell]:
    """The detectors of these panels: source, kind, size; they cost nothing once figures 3 to 5 are
    measured."""
    return [
        cell("detectors", s, 4000, dataset=d, kind=k, size=n, shadows=shadows_of(d, n))
        for d, k, n in panels
        for s in range(3)
    ]


def panels(name: str, about: str, kind: str, *clients: int) -> Experiment:
    """Figure 3, 4, 5 or 8."""
    made = partial(cells, clients, clients == (50,))
    return Experiment(
        f"kerkouche2023-{name}", about, partial(figure, kind), made, claims=partial(claimed, kind)
    )


EXPERIMENTS = (
    Experiment("kerkouche2023-fig2", "feature distributions", looked_into,
               partial(inside, ("mnist", "membership", 10))),
    panels("fig3", "who holds a record", "membership", 50),
    panels("fig4", "who inverts its update", "inversion", 50),
    panels("fig5", "who climbs the loss", "ascent", 50),
    Experiment("kerkouche2023-fig6", "norm of the detectors' weights", looked_into,
               partial(inside, ("cifar10", "ascent", 50)),
               claims=lambda one: {NORM: {"100": 1.0}}),
    Experiment("kerkouche2023-fig7", "overlap of the distributions", looked_into,
               partial(inside, ("cifar10", "membership", 25), ("cifar10", "inversion", 25)),
               claims=lambda one: {OVL: {"300": 0.0}} if one["kind"] == "inversion" else {}),
    panels("fig8-membership", "who holds a record, more clients", "membership", 100, 200),
    panels("fig8-ascent", "who climbs the loss, more clients", "ascent", 100, 200),
    Experiment(
        "kerkouche2023-small", "who holds a record, small models", partial(figure, "membership"),
        lambda: [
            cell(m, s, 30, s < 1, dataset=f"{d}, logistic", size=20, clients=20, rounds=40)
            for m in (OURS, "OLS", "REG") for d in SMALL for s in range(20)
        ],
    ),
    Experiment("kerkouche2023-appendixb", "errors of two ways to disaggregate", appendix_b,
               lambda: [cell("OLS", s, 1, s < 3, norm=n) for n in (0.1, 1, 10) for s in range(9)],
               claims=lambda one: {TIMES: float(one["norm"])}),
)  # fmt: skip
