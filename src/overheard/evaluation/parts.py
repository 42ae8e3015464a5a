"""What is an audit made of? Parts that can be done one by one, here or in other processes.

What all parts share is `Asked`: the recording, who listens, and what was read and fitted once. A
`Part` finds pieces: one attack on one client, a replay, a curve. `Asked.found_by` has them found,
by as many processes as are worth it (`overheard.workers`); which process found what is in none.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

from overheard.attacks import all_attacks, is_slow
from overheard.errors import ChooseAnotherAttack, ListenLonger
from overheard.evaluation.baselines import Imputer
from overheard.evaluation.checkpoint import NOT_RUN, Checkpoint, Progress, attempt, silent
from overheard.evaluation.record import Failed, Finding, Skipped
from overheard.evaluation.scoring import ALL_CLIENTS, Case, Scored, Scorer, answers_in
from overheard.programs.program import Terms
from overheard.programs.records import Records
from overheard.programs.trusted import trust, trusted
from overheard.transcript.store import Recording
from overheard.transcript.target import Target
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, View, launch, observe
from overheard.workers import shared_out

SLOW = "a slow search, not run by default; name it with --attack, or run all with --slow"


@dataclass(frozen=True)
class AuditOptions:
    """How an audit is done.

    ``slow``: attacks that search for minutes run also when they are not named; otherwise they are
    listed as skipped. ``progress``: called with what begins, how many steps are done
    and how many there are.

    ``rounds``: ask also what the first rounds alone would have shown; ``ladder``: and what
    adversaries learn who know less and less of the clients (`evaluation.ladder`), of whose columns
    ``demographics`` are in registers (none named: those that are called so). "brief" asks two
    rungs, of the secret and client where most was learned, if it has no more than
    ``brief_records``: what a rung without columns takes grows with their third power, to minutes
    beyond a hundred.

    ``workers``: by how many processes, as in `overheard.workers`; attacks that are defined in a
    notebook need one. ``fitted``: what imputation guesses of records, for all audits with these
    options that have the same.
    """

    seed: int = 0
    slow: bool = False
    progress: Progress = field(default_factory=lambda: silent)
    rounds: bool = False
    ladder: bool | Literal["brief"] = False
    brief_records: int = 100
    demographics: tuple[str, ...] = ()
    workers: str = "1"
    fitted: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Asked:
    """What an audit is asked, and what all of its parts share: in another process, too, where it
    is unpacked once. ``named``: the attacks that were asked for by name, and hence run however slow
    they are."""

    recording: Recording
    threat: Threat
    attacks: tuple[Attack, ...]
    named: bool
    clients: tuple[str, ...]
    targets: tuple[Target, ...]
    options: AuditOptions
    kept: Checkpoint
    recipe: Terms

    @cached_property
    def truth(self) -> Mapping[str, Records]:
        """The clients' records; a question about all of them at once may do without."""
        needed = any(not target.asked.together for target in self.targets)
        there = needed or self.recording.holds_truth("Records")
        return self.recording.truth() if there else {}

    @cached_property
    def imputer(self) -> Imputer:
        """The imputation baselines, each fitted once for the whole audit."""
        return Imputer(self.options.seed, self.options.fitted)

    @cached_property
    def _answers(self) -> dict[str, Mapping[str, Records] | None]:
        """What ``truth/`` says of each target beside the records, read once."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which reads and fits for itself and tells nobody how far it is."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return own | {"options": replace(self.options, progress=silent)}

    def found_by(self, parts: Sequence[Part]) -> list[Any]:
        """What some parts of the audit find, in their order."""
        found: dict[int, list[Any]] = {}

        def say(words: str) -> None:
            self.options.progress(words, len(found), len(parts))

        for part in parts[:1]:
            say(part.name)
        task = partial(_found, self, tuple(parts), trusted())
        calls = [(k,) for k in range(len(parts))]
        for k, pieces in shared_out(task, calls, self.options.workers, "part of the audit", say):
            found[k] = pieces
            say(parts[min(k + 1, len(parts) - 1)].name)
        return [one for k in calls for one in found[k[0]]]

    def case(self, target: Target, client: str) -> tuple[View, Scorer]:
        """What the adversary holds of a client, and what scores its guesses."""
        view = observe(self.recording, self.threat, target, client)
        this = (self.recipe, self.truth, target, view, self.options.seed)
        if target.key not in self._answers:
            self._answers[target.key] = answers_in(self.recording, target)
        return view, Case(*this, self._answers[target.key], self.imputer).scorer()

    def tried(
        self,
        attack: Attack,
        target: Target,
        client: str,
        case: Callable[[], tuple[View, Scorer]],
        doing: str = "",
    ) -> Scored | Skipped | Failed:
        """One attack on one client: its answer, scored, or why there is none. ``doing``: which part
        of the audit it is, where not that of the whole recording."""

        def run() -> Scored:
            asks = None if doing or view.lacks(attack.needs) else getattr(attack, "same_as", None)
            if asks and (same := asks(view)) in {a.name for a in self.attacks}:
                raise ChooseAnotherAttack(f"answers here as {same} does, which is run as well")
            begin = time.perf_counter()
            guess = launch(attack, view, self.options.seed)
            return scorer(attack, guess, time.perf_counter() - begin)

        about: dict[str, Any] = {"attack": attack.name, "client": client or ALL_CLIENTS}
        about |= {"attribute": target.column or None, "doing": doing}
        try:
            if not (self.options.slow or self.named or doing or not is_slow(attack)):
                raise ListenLonger(SLOW)
            view, scorer = case()  # an error of the recording is no attack's own
            return attempt(run, **about)
        except NOT_RUN as error:
            return Skipped(**about, reason=f"{doing}: {error}" if doing else str(error))

    def target_of(self, found: Finding) -> Target:
        """What a finding is about."""
        about = (found.question, found.attribute)
        return next(t for t in self.targets if (t.question, t.column or None) == about)

    @staticmethod
    def key_of(attack: Attack) -> str:
        """What an attack's results are kept under: its name and, where they are its own,
        settings."""
        usual = all_attacks().get(attack.name)
        return attack.name if usual is not None and attack == usual() else repr(attack)


@dataclass(frozen=True)
class Part:
    """What can be done of an audit by itself: ``find`` finds its pieces, which are kept under
    ``key``."""

    name: str
    find: Callable[[Asked], Iterable[Any]]
    key: tuple[str, ...]


def _found(
    asked: Asked, parts: Sequence[Part], known: Sequence[str], number: int
) -> tuple[int, list[Any]]:
    """Which part it is, and what it finds; ``known``: the code that whoever hands it out trusts."""
    for factory in known:
        trust(factory)
    part = parts[number]
    return number, asked.kept.made(partial(part.find, asked), *part.key)
