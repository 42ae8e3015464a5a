"""Did the clients train as declared, in a sentence that stands beside the verdict?"""

from __future__ import annotations

from overheard.evaluation.record import Audit, Replay
from overheard.report import words

NAMED = 3


def replay_words(audit: Audit) -> str:
    """What replaying the clients' own records under the declared recipe showed."""
    found = audit.replays
    if not found:
        return (
            "Whether the clients trained as declared was not checked: this audit holds no replay "
            "of their records."
        )
    unfit = [r for r in found if r.outcome == "does not fit"]
    unchecked = [r for r in found if r.outcome == "cannot be checked"]
    checked, all_ = len(found) - len(unchecked), words.count(len(found), "client")
    reasons = words.joined(words.unique(r.reason for r in unchecked), NAMED)
    if not checked:
        return (
            f"Whether the clients trained as declared cannot be checked ({reasons}): if they did "
            "not, what the attacks find is worth little, and nothing here would show it."
        )
    sentences = []
    if unfit:
        told = words.joined([f"{r.client} ({r.reason or _off(r)})" for r in unfit], NAMED)
        sentences.append(
            f"{len(unfit):,} of {all_} did not train as declared: replayed on their own records, "
            f"the recipe does not lead to what they returned: {told}. Records, encoding, "
            "optimiser, learning rate, epochs or loss are other than declared, or clients were "
            "mistaken for each other. Attacks that are told a wrong recipe learn less than they "
            "could: that they find little about these clients says nothing."
        )
    else:
        fitting = [r for r in found if r.outcome == "fits"]
        rounds = sum(len(r.rounds) for r in fitting)
        exact = [r for r in fitting if not r.by_chance]
        how = []
        if exact:
            how.append(f"to {words.excess(max(r.off or 0.0 for r in exact))} of an update")
        if len(exact) < len(fitting):
            how.append("as closely as chance (random orders, noise) leaves replays to each other")
        sentences.append(
            f"Replayed on their own records under the declared recipe, {checked:,} of {all_} "
            f"returned what the recipe leads to, {' or '.join(how)} "
            f"({words.count(rounds, 'message')} compared)."
        )
    if unchecked:
        sentences.append(f"{len(unchecked):,} could not be checked ({reasons}).")
    return " ".join(sentences)


def replay_lines(audit: Audit) -> list[tuple[str, str]]:
    """Each client with its outcome in words; what does not fit first."""
    order = {"does not fit": 0, "cannot be checked": 1, "fits": 2}
    return [
        (r.client, f"{r.outcome}: {r.reason or _line(r)}")
        for r in sorted(audit.replays, key=lambda r: order[r.outcome])
    ]


def _line(replay: Replay) -> str:
    return f"{_off(replay)}; {words.count(len(replay.rounds), 'round')} replayed"


def _off(replay: Replay) -> str:
    """off by 3.1% of its update in round 7, where chance leaves replays up to 4% apart"""
    told = f"off by {words.excess(replay.off or 0.0)} of its update in round {replay.round}"
    if replay.by_chance:
        told += f", where chance leaves replays up to {words.excess(replay.by_chance)} apart"
    return told
