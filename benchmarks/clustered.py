"""How sure figures on recorded work are, where rows of one instant or one observation move together.

Such rows are one piece of evidence. Of a share the interval is the ratio estimator's over clusters; of a group error the floor is
what clusters as alike as these would show of a predictor that is right, by chance alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from predictors.distribution import Array

LEVELS = ("q50", "q90", "q95", "q99")
SURE = float(norm.ppf(0.975))
"""Standard errors on either side of a 95 % interval."""
MEAN_SIZE = float(np.sqrt(2.0 / np.pi))
"""E|Z| of a standard normal Z."""
TINY = 1.0 + 1e-9
"""Factor within which a duration and a quantile are the same, as the scorer has it."""


def clustered(truth: Any, answers: Any, groups: list[str], least: int) -> dict[str, Any]:
    """Half widths of 95 % intervals of coverage by level, and the floor of the mean group error at p90 (None without groups).

    `truth` and `answers` are tables as the scorer reads them; rows that were not answered are left out. Groups need `least` rows.
    """
    key = ["observation_id", "phase", "attempt"]
    rows = truth.merge(answers[[*key, *LEVELS]], on=key).dropna(subset=list(LEVELS))
    cluster = clusters(rows)
    weight = rows["weight"].to_numpy()
    found: dict[str, Any] = {}
    for level in LEVELS:
        below = (rows["duration_s"].to_numpy() <= rows[level].to_numpy() * TINY).astype(float)
        found[level.replace("q", "cov")] = SURE * error(below, weight, cluster)
    below = (rows["duration_s"].to_numpy() <= rows["q90"].to_numpy() * TINY).astype(float)
    places = [place for place in rows.groupby(groups, sort=False).indices.values() if len(place) >= least]
    floors = [MEAN_SIZE * error(below[place], weight[place], cluster[place]) for place in places]
    found["floor90"] = float(np.mean(floors)) if floors else None
    return found


def clusters(rows: Any) -> NDArray[np.intp]:
    """Number of each row's cluster, shape (n,): its instant where rows share those, else its observation: the scorer's."""
    instants = bool(rows["timed"].iloc[0]) and rows["t0"].nunique() < rows["observation_id"].nunique() / 2
    return np.asarray(np.unique(rows["t0" if instants else "observation_id"].to_numpy(), return_inverse=True)[1])


def error(value: Array, weight: Array, cluster: NDArray[np.intp]) -> float:
    """Standard error of the weighted mean of `value`, all of shape (n,): deviations are summed within clusters first."""
    share = weight / weight.sum()
    apart = np.bincount(cluster, share * (value - share @ value))
    return float(np.sqrt(np.square(apart).sum()))
