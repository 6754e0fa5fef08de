"""How sure figures on recorded work are, where rows of one instant or one observation move together.

Such rows are one piece of evidence. Of a share the interval is the ratio estimator's over clusters. Of a group error the floor is
what clusters as alike as these would show of a predictor that is right, by chance alone; the interval is that of its linear part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from predictors.distribution import Array

P90 = 0.9
LEVELS = ("q50", "q90", "q95", "q99")
SURE = float(norm.ppf(0.975))
"""Standard errors on either side of a 95 % interval."""
MEAN_SIZE = float(np.sqrt(2.0 / np.pi))
"""E|Z| of a standard normal Z."""
TINY = 1.0 + 1e-9
"""Factor within which a duration and a quantile are the same, as the scorer has it."""


def clustered(truth: Any, answers: Any, groups: list[str], least: int) -> dict[str, Any]:
    """Half widths of 95 % intervals of coverage by level, and of the mean group error at p90 its floor and half width.

    The last two are `floor90` and `group90`, None where no group is large enough.
    `truth` and `answers` are tables as the scorer reads them; rows that were not answered are left out. Groups need `least` rows.
    """
    key = ["observation_id", "phase", "attempt"]
    rows = truth.merge(answers[[*key, *LEVELS]], on=key).dropna(subset=list(LEVELS))
    cluster = clusters(rows)
    weight, lasted_s = rows["weight"].to_numpy(), rows["duration_s"].to_numpy()
    hits = {level: (lasted_s <= rows[level].to_numpy() * TINY).astype(float) for level in LEVELS}
    found: dict[str, Any] = {level.replace("q", "cov"): SURE * error(hit, weight, cluster) for level, hit in hits.items()}
    below = hits["q90"]
    places = [place for place in rows.groupby(groups, sort=False).indices.values() if len(place) >= least]
    floors = [MEAN_SIZE * error(below[place], weight[place], cluster[place]) for place in places]
    found["floor90"] = float(np.mean(floors)) if floors else None
    found["group90"] = SURE * group_error(below, weight, cluster, places) if places else None
    return found


def clusters(rows: Any) -> NDArray[np.intp]:
    """Number of each row's cluster, shape (n,), from a table as the scorer reads it."""
    timed = bool(rows["timed"].iloc[0])
    return pieces(rows["t0"].to_numpy() if timed else None, rows["observation_id"].to_numpy())


def pieces(begun_s: Any, observation: Any) -> NDArray[np.intp]:
    """Number of each row's cluster, shape (n,): its instant where observations share those, else its observation.

    It is the scorer's rule. `begun_s` is None where no times are known.
    """
    instants = begun_s is not None and len(np.unique(begun_s)) < len(set(observation)) / 2
    return np.asarray(np.unique(begun_s if instants else observation, return_inverse=True)[1])


def error(value: Array, weight: Array, cluster: NDArray[np.intp]) -> float:
    """Standard error of the weighted mean of `value`, all of shape (n,): deviations are summed within clusters first."""
    share = weight / weight.sum()
    apart = np.bincount(cluster, share * (value - share @ value))
    return float(np.sqrt(np.square(apart).sum()))


def group_error(hit: Array, weight: Array, cluster: NDArray[np.intp], places: Sequence[NDArray[np.intp]]) -> float:
    """Standard error of the mean over groups, given by their rows, of |coverage - P90|.

    Deviations of a cluster in all its groups are summed first, each with the sign of its group's. Where a group is close to P90
    that sign is chance, which is left out.
    """
    apart = np.zeros(int(cluster.max()) + 1)
    for place in places:
        share = weight[place] / weight[place].sum()
        covered = float(share @ hit[place])
        turned = np.sign(covered - P90) * share * (hit[place] - covered)
        apart += np.bincount(cluster[place], turned, minlength=len(apart)) / len(places)
    return float(np.sqrt(np.square(apart).sum()))
