"""A site: of women and of men, who is at risk at each age and who spends much before the next."""

from __future__ import annotations

import numpy as np
import nvflare.client as flare
import people
from server import AGES


def table(site: dict[str, np.ndarray]) -> np.ndarray:
    """Kaplan and Meier's: at risk, then events (2, ages, sexes), as one list."""
    age, sexes = site["xage"][:, None], np.stack([site["female"] == s for s in (0, 1)], axis=1)
    risk = age >= AGES
    events = risk & (age < np.append(AGES[1:], np.inf)) & (site[people.TARGET][:, None] > 0)
    return np.stack([np.einsum("mt,ms->ts", a.astype(int), sexes) for a in (risk, events)]).ravel()


def main() -> None:
    flare.init()
    mine = people.sites()[f"site {flare.get_site_name()[-1]}"]
    while flare.is_running():
        flare.receive()
        flare.send(flare.FLModel(params={"survival": table(mine)}))


if __name__ == "__main__":
    main()
