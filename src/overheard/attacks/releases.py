"""What do releases of programs that train no network tell?

Newton steps, trees and tables are exactly linear in "which candidate is record i?": the program
says what all that was heard measures (`Program.measure`), and one posterior decodes it. Sums over
few records each (leaves of trees, cells of tables) have a decoder that proves what `decode` can
only believe (`overheard.decoding.subset_sums`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.client import Client
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.posterior import POOR_FIT
from overheard.decoding.subset_sums import decode_subset_sums
from overheard.decoding.ties import decode_tied, group_means
from overheard.programs.program import Program

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ReleaseOptions:
    """Settings of the decoding of releases.

    fitting: mean square of what no candidate explains, in units of rounding, that is let pass: the
        posterior raises the noise to it, and a wrong description leaves orders of magnitude more.
    sweeps: of fitting margins; a few dozen settle to 1e-6.
    """

    fitting: float = 1e4
    sweeps: int = 200


DEFAULT = ReleaseOptions()


def decode_releases(client: Client, options: ReleaseOptions = DEFAULT) -> Posterior:
    """Probabilities of each record's candidates. Notes: ``misfit``, the mean square of what no
    candidate explains, and, of sums over few records each, ``proven``: the records with one
    possible value."""
    program, heard = client.program, client.messages.exchanges
    assert isinstance(program, Program)
    shared = group_means(client.prior, client.ties)
    equations = program.equations(heard, client.candidates)
    notes: dict[str, float | int | str]
    if equations is not None:
        found = decode_subset_sums(equations, shared)
        posterior, misfit = found.posterior, found.misfit
        notes = {"misfit": misfit, "proven": int(found.proven.sum())}
    else:
        measurement = program.measure(heard, client.candidates)
        posterior, misfit = decode_tied(measurement, client.ties, shared), measurement.misfit
        notes = {"misfit": misfit}
    flag = posterior.flag or (POOR_FIT if misfit > options.fitting else "")
    apart = _told_apart(posterior.probabilities, client, options.sweeps)
    return replace(posterior, probabilities=apart, flag=flag, notes=notes)


def _told_apart(probabilities: Array, client: Client, sweeps: int) -> Array:
    """Records that the program cannot tell apart, told apart by their priors: those closest to
    the priors whose mean over the group is what was decoded (iterative proportional fitting)."""
    made, ties, prior = probabilities.copy(), client.ties, client.prior
    for group in np.flatnonzero(np.bincount(ties) > 1):
        mine = np.flatnonzero(ties == group)
        if (prior[mine] == prior[mine[0]]).all():
            continue
        wanted = probabilities[mine].mean(axis=0)
        fitted = prior[mine].copy()
        for _ in range(sweeps):
            fitted *= wanted / np.maximum(fitted.mean(axis=0), 1e-300)
            fitted /= np.maximum(fitted.sum(axis=1, keepdims=True), 1e-300)
        made[mine] = fitted
    return made
