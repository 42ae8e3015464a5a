"""Which clients have a property? What the question needs to hear, and its answer client by client.

An audit of the question ``property`` lists every client (`suspects`), also without ``truth/``,
which is what an operator has: then the list is all that there is, and nothing says how right it is.
"""

from __future__ import annotations

import numpy as np

from overheard.errors import ListenLonger
from overheard.evaluation.record import Suspect
from overheard.transcript.guess import ClientProperty
from overheard.transcript.knowledge import Sums
from overheard.transcript.view import View


def check_observed(view: View) -> None:
    """Refuse what no attack on a property can work with, and say what is missing."""
    if Sums not in view.kinds:
        raise ListenLonger(
            f"{view.target.key!r} is asked of the sums of updates, which the threat model "
            f"{view.threat!r} does not hear; audit as 'secure-server'"
        )
    sums = view.know(Sums)
    sums.require(2, "telling clients apart")
    if (sums.participation == sums.participation[:, :1]).all():
        raise ListenLonger(
            f"all {len(sums.clients)} clients took part in the same {len(sums)} rounds, so their "
            "updates are only ever observed together and cannot be told apart; record a federation "
            "with participation below 1"
        )


def suspects(guess: ClientProperty, sums: Sums) -> tuple[Suspect, ...]:
    """Every client: the accused first, then by probability."""
    chosen, remark_of = guess.choice(), remarks(sums)
    found = [
        Suspect(
            client=client,
            probability=float(np.clip(guess.probabilities[k], 0, 1)),
            accused=bool(chosen[k]),
            rounds=int(sums.participation[:, k].sum()),
            contribution=None if guess.contribution is None else float(guess.contribution[k]),
            remark=remark_of.get(client, ""),
        )
        for k, client in enumerate(guess.clients)
    ]
    return tuple(sorted(found, key=lambda s: (not s.accused, -s.probability)))


def remarks(sums: Sums) -> dict[str, str]:
    """Clients about whom the participation says little, each with the reason."""
    seen: dict[bytes, str] = {}
    remark_of: dict[str, str] = {}
    for name, column in zip(sums.clients, sums.participation.T, strict=True):
        if not column.any():
            remark_of[name] = "never took part: nothing was observed of it"
        elif column.all():
            remark_of[name] = "took part in every round: never observed apart from the rest"
        elif (first := seen.setdefault(column.tobytes(), name)) != name:
            remark_of[name] = f"took part in the same rounds as {first}"
    return remark_of
