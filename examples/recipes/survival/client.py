"""A site: of women and of men, how many leave at each age, and how many of them spend much then."""

import numpy as np
import nvflare.client as flare
import people
from server import AGES


def table(site: dict[str, np.ndarray]) -> np.ndarray:
    """Counts by sex, age and whether there was an event (2, ages, 2), as one list."""
    columns = (site["female"], site["xage"], site[people.TARGET])
    edges = ([0, 1, 2], np.append(AGES, np.inf), [0, 1, 2])
    return np.histogramdd(np.stack(columns, axis=1), edges)[0].astype(np.int64).ravel()


def main() -> None:
    flare.init()
    mine = people.sites()[f"site {flare.get_site_name()[-1]}"]
    while flare.is_running():
        flare.receive()
        flare.send(flare.FLModel(params={"survival": table(mine)}))


if __name__ == "__main__":
    main()
