"""lyu2021's tables: every setting in every repetition, as rows beside what is claimed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from overheard.attacks.papers.lyu2021 import CosMatching, phase
from overheard.data.dealing import VICTIM
from overheard.data.source import load, source_named
from overheard.evaluation.baselines import Imputer
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from papers.common.harness import STRANGER, mean_row
from papers.common.rows import Progress, Reproduction, Row
from papers.lyu2021.claims import COS
from papers.lyu2021.scoring import Hits, Measured, Outcome, score, share
from papers.lyu2021.settings import OURS, WHOLE, Setting

UNITS = "accuracy"


def stranger_hits(setting: Setting, most: int, seed: int) -> Hits | None:
    """Whom a stranger with the public set gets right, of the first ``most`` records.

    A smaller victim is the beginning of a larger one, so one imputation serves all sizes.
    """
    whole = replace(setting, records=most, others=0)
    ready = plan(parse_config(whole.config(seed)))
    if ready.auxiliary is None:
        return None
    truth = {VICTIM: ready.clients[VICTIM], "public": ready.auxiliary}
    values = ready.attributes[setting.column].values
    found = Imputer(seed).values(ready.recipe, truth, VICTIM, setting.column, values)
    return None if found is None else found.hits


def strangers_of(settings: Sequence[Setting], seed: int) -> dict[tuple[str, ...], Hits]:
    """The stranger's hits for every data set and attribute that a table asks about."""
    largest: dict[tuple[str, ...], Setting] = {}
    for setting in settings:
        key = _data_key(setting)
        if not setting.pooled and (key not in largest or setting.records > largest[key].records):
            largest[key] = setting
    found = {key: stranger_hits(s, s.records, seed) for key, s in largest.items()}
    return {key: hits for key, hits in found.items() if hits is not None}


def _data_key(setting: Setting) -> tuple[str, ...]:
    return setting.source, setting.column, str(sorted(setting.options.items()))


def run_table(settings: Sequence[Setting], seeds: int, progress: Progress) -> Reproduction:
    """Every setting in every repetition, as rows."""
    warm_up()
    notes: dict[str, dict[str, None]] = {}
    outcomes: list[list[Outcome]] = [[] for _ in settings]
    total = seeds * len(settings)
    for seed in range(seeds):
        progress("strangers", seed * len(settings), total)
        strangers = {} if seed else strangers_of(settings, seed)
        for at, setting in enumerate(settings):
            progress(f"{setting.panel}, {setting.at}", seed * len(settings) + at, total)
            made, refused = score(setting, seed)
            imputed = strangers.get(_data_key(setting))
            if imputed is not None and not setting.pooled and made:
                mine = imputed[: setting.records]
                outcomes[at].append(Outcome(STRANGER, mine, made[0].majority, (0.0,)))
            outcomes[at] += made
            for note in refused:
                notes.setdefault(note, {})[f"{setting.panel}, {setting.at}"] = None
    rows = [
        row
        for setting, made in zip(settings, outcomes, strict=True)
        for row in rows_of(setting, made)
    ]
    sources = list(dict.fromkeys(s.source for s in settings))
    shown = [load(s, victim=1).name for s in sources]
    about = [source_named(s).note for s in sources]
    refusals = [f"{note} ({'; '.join(where)})" for note, where in notes.items()]
    words = (training_words(settings), *search_words(settings))
    all_notes = (*about, *NOTES, *words, *refusals)
    return Reproduction(rows, ", ".join(shown), all_notes, seeds)


def training_words(settings: Sequence[Setting]) -> str:
    """How the victims were trained, for whoever reads the numbers."""
    ways = dict.fromkeys(
        f"B={s.batch or 'all'}, {s.epochs} local epoch(s), rate {s.rate}, {s.rounds} rounds"
        for s in settings
    )
    return f"Trained by SGD with: {'; '.join(ways)}."


def search_words(settings: Sequence[Setting]) -> list[str]:
    """How long the paper's search was, and where."""
    ways: dict[str, dict[str, None]] = {}
    for setting in settings:
        cos = setting.attacks.get(COS)
        if isinstance(cos, CosMatching):
            phases = setting.phase or ", ".join(cos.phases)
            words = f"phases {phases}; {cos.steps} steps of Adam; temperature {cos.temperatures[0]}"
            ways.setdefault(words, {})[f"{setting.source} {setting.records}"] = None
    return [f"{COS}: {words} ({', '.join(where)} records)." for words, where in ways.items()]


NOTES = (
    "Majority is the victim's own commonest value. The stranger has 1,000 other records with the "
    "attribute and the label, and does not listen.",
    "The paper states neither learning rate nor split. It lists the best of several training "
    "phases, chosen by the truth; here the search keeps the configuration of least objective, and "
    "`statistics` follows the majority rule.",
    "Each row says how many repetitions it is of: searches that take long, and the stranger, are "
    "run in the first only. Intervals are the wider of Wilson's (of balanced accuracy and F1: "
    "resampled records; of numbers that are counted: least and most) and, from three "
    "repetitions on, Student's over repetitions. Seconds are of the processor, one thread; what "
    "takes less than a second is timed three times, and the interval of a ratio of times is "
    "from the slowest of these to the fastest.",
)


def warm_up() -> None:
    """Import and start torch, so that no method is charged for it."""
    import torch

    torch.ones(2, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]


def over_repetitions(values: Sequence[Measured], row: Row) -> Row:
    """The row with the wider of two intervals: Student's over repetitions (if three or more),
    and the mean of the repetitions' own. Of numbers that are counted: the least and the most."""
    if all(v.low == v.high for v in values):
        return replace(row, low=min(v.low for v in values), high=max(v.high for v in values))
    low, high = (float(np.mean([getattr(v, end) for v in values])) for end in ("low", "high"))
    low = low if row.low is None else min(low, row.low)
    high = high if row.high is None else max(high, row.high)
    return replace(row, low=max(low, 0.0), high=min(high, 1.0))


def rows_of(setting: Setting, outcomes: Iterable[Outcome]) -> list[Row]:
    """A row per method and measure: the mean over repetitions, and how much faster ours is."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.method, []).append(outcome)
    rows = []
    for method, group in groups.items():
        pooled = share(np.concatenate([o.hits for o in group]))
        row = mean_row(
            setting.panel,
            setting.at,
            method,
            UNITS,
            [float(o.hits.mean()) for o in group],
            claimed=setting.claims.get(method),
            majority=float(np.mean([o.majority for o in group])),
            seconds=float(np.mean([np.mean(o.seconds) for o in group])),
        )
        rows.append(over_repetitions([pooled], row))
        for measure in dict.fromkeys(m for o in group for m in o.measures):
            values = [o.measures[measure] for o in group if measure in o.measures]
            numbers = [v.value for v in values]
            row = mean_row(setting.panel, setting.at, method, measure, numbers)
            rows.append(over_repetitions(values, row))
    return rows + speed_rows(setting, groups)


def speed_rows(setting: Setting, groups: Mapping[str, Sequence[Outcome]]) -> list[Row]:
    """How many times faster than the paper's search ours is: as run, and as long as the paper's."""
    cos = setting.attacks.get(COS)
    if COS not in groups or OURS not in groups or not isinstance(cos, CosMatching):
        return []
    search, mine = float(np.mean(groups[COS][0].seconds)), groups[OURS][0].seconds
    measures = {f"times faster than {COS}": search}
    whole, run = matched(WHOLE, 100), matched(cos, setting.rounds)
    if whole > run:
        measures[f"times faster than {COS} with all phases (scaled)"] = search * whole / run
    rows = []
    for measure, cost in measures.items():
        low, ratio, high = (cost / s for s in (max(mine), float(np.mean(mine)), min(mine)))
        rows.append(Row(setting.panel, setting.at, OURS, measure, ratio, low, high))
    return rows


def matched(cos: CosMatching, heard: int) -> int:
    """How many gradients of the whole client a search computes: its cost."""
    rounds = sum(len(phase(heard, name)) for name in cos.phases)
    return rounds * len(cos.temperatures) * cos.steps
