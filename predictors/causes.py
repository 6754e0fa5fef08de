"""Cause-specific incidence: the chance of having completed, failed or been cancelled by a time, from hazards split by cause.

Between knots the total hazard H is a line over log time, as in every curve, and every cause has a constant share of what ends
there: F_c(t) = sum over segments of share_c (S(start) - S(end)), S = exp(-H). Shares sum to 1, so incidences and S do as well.

Cancellation is ordinarily a censoring that says nothing of when the attempt would have ended; here it is a cause by itself. If
attempts are cancelled because they last, neither is right: `Incidence.cancellation_bound` tells how far that could go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from predictors import tails
from predictors.distribution import Array, Support
from predictors.grids import Curve
from telemetry.errors import BadField
from telemetry.words import Ended

CAUSES = (Ended.COMPLETED, Ended.FAILED, Ended.CANCELLED)
"""Rows of every array of incidences."""
COMPLETED, FAILED, CANCELLED = range(3)
BOUND_LEVELS = (0.5, 0.9, 0.99)
LEAST, MOST = 1e-12, 1.0 - 1e-9
TINY = 1e-300


@dataclass(frozen=True)
class Bound:
    """A quantile of the duration of attempts that don't fail by the horizon, under the two extreme beliefs on cancelled ones.

    `reached` is False where the later belief doesn't come to the level by the horizon: `if_never_s` is then the horizon, a lower
    bound.
    """

    level: float
    if_ended_then_s: float
    if_never_s: float
    reached: bool


@dataclass(frozen=True)
class Incidence:
    """How and when one context's phase ends.

    `curve` is the law of ending by any cause. `share` (3, n_knots + 2) is the part that each cause has in what ends at time zero,
    before each knot in turn, and past the last one.
    """

    curve: Curve
    share: Array

    @cached_property
    def _starts(self) -> tuple[Array, Array]:
        """S (n_knots + 1,) and incidence (3, n_knots + 1) where segments start: at time zero and at the knots."""
        survival = np.exp(-np.append(self.curve.atom, self.curve.hazard))
        ended = self.share[:, :-1] * -np.diff(survival, prepend=1.0)
        return survival, np.cumsum(ended, axis=1)

    @property
    def supported_to_s(self) -> float:
        """The longest duration or bound known, s: past it stands the declared tail."""
        return self.curve.support.largest_s

    @property
    def times_s(self) -> Array:
        """Time zero and the knots in s, shape (n_knots + 1,): where shares change."""
        return np.append(0.0, np.exp(self.curve.log_t))

    def survival(self, t_s: Array) -> Array:
        """Chance of still running at t, shape (n,) of t_s >= 0."""
        return np.exp(-self.curve.hazard_at(t_s))

    def by(self, t_s: Array) -> Array:
        """Chance of having ended by t, one row per name in CAUSES, shape (3, n) of t_s >= 0."""
        at_start, before = self._starts
        with np.errstate(divide="ignore"):
            segment = np.searchsorted(self.curve.log_t, np.log(t_s), side="left")
        return before[:, segment] + self.share[:, segment + 1] * (at_start[segment] - self.survival(t_s))

    def given_completion(self, t_s: Array, horizon_s: float) -> Array:
        """P(T <= t | completed by the horizon) = F_1(min(t, horizon)) / F_1(horizon), shape (n,); 1 from the horizon on."""
        whole = self._by_horizon(horizon_s)[COMPLETED]
        early = self.by(np.minimum(t_s, horizon_s))[COMPLETED]
        return np.where(t_s >= horizon_s, 1.0, np.minimum(early / max(whole, TINY), 1.0))

    def quantile_given_completion(self, p: Array, horizon_s: float) -> Array:
        """Time in s by which a share p of those completed by the horizon are, shape (n,); at most the horizon."""
        whole = self._by_horizon(horizon_s)[COMPLETED]
        return np.minimum(self._reached((COMPLETED,), p * whole), horizon_s)

    def quantile_given_failure(self, p: Array, elapsed_s: float = 0.0) -> Array:
        """Further time in s by which a share p of those that fail yet has failed, shape (n,), once they have lasted elapsed_s.

        Past the longest duration known it goes on as the last segment says.
        """
        at_start, before = self._starts
        ever = before[FAILED, -1] + self.share[FAILED, -1] * at_start[-1]
        failed = self.by(np.array([elapsed_s]))[FAILED, 0]
        return np.maximum(self._reached((FAILED,), failed + p * max(ever - failed, 0.0)) - elapsed_s, 0.0)

    def ever(self) -> tuple[float, float]:
        """Bounds of the chance of ever completing: [F_1(tau), F_1(tau) + S(tau)] at the end of the support.

        What still runs at tau may complete or not, and no data say which; what failed or was cancelled by then did not.
        """
        tau = np.array([self.supported_to_s])
        done = float(self.by(tau)[COMPLETED, 0])
        return done, min(done + float(self.survival(tau)[0]), 1.0)

    def cancellation_bound(self, horizon_s: float, levels: Sequence[float] = BOUND_LEVELS) -> tuple[Bound, ...]:
        """Quantiles if every cancelled attempt had ended just then, and if none ever had by the horizon.

        Of attempts that don't fail by the horizon, a share 1 - F_2: early (F_1 + F_3) / (1 - F_2), late F_1 / (1 - F_2). Without
        failures, whatever cancelled attempts would have done lies between.
        """
        by_horizon = self._by_horizon(horizon_s)
        mass = np.asarray(levels, dtype=np.float64) * (1.0 - by_horizon[FAILED])
        early = np.minimum(self._reached((COMPLETED, CANCELLED), mass), horizon_s)
        late = np.minimum(self._reached((COMPLETED,), mass), horizon_s)
        reached = mass <= by_horizon[COMPLETED]
        late = np.where(reached, late, horizon_s)
        return tuple(Bound(*row) for row in zip(levels, early.tolist(), late.tolist(), reached.tolist(), strict=True))

    def _by_horizon(self, horizon_s: float) -> Array:
        """Incidences at the horizon, shape (3,); BadField where it is no time after the start."""
        if not 0.0 < horizon_s < np.inf:
            raise BadField("horizon_s", horizon_s, "give a finite time in s after the start")
        return self.by(np.array([horizon_s]))[:, 0]

    def _reached(self, causes: Sequence[int], mass: Array) -> Array:
        """Least t at which the causes' joint incidence reaches `mass`, shape (n,); the last segment's law where it never does."""
        at_start, before = self._starts
        together, share = before[list(causes)].sum(axis=0), self.share[list(causes)].sum(axis=0)
        segment = np.maximum(np.searchsorted(together, mass, side="left") - 1, 0)
        wanted = np.maximum(mass - together[segment], 0.0) / np.maximum(share[segment + 1], TINY)
        survival = np.maximum(at_start[segment] - wanted, TINY)
        return np.where(mass <= together[0], 0.0, self.curve.time_at(-np.log(survival)))


def incidence_of(hazards: Array, log_t: Array, spread: float, log_cap: float, support: Support) -> Incidence:
    """Incidence from hazards by cause (3, n_columns) on the grid of `counts`, with its edges at log_t (n_columns - 1,).

    Completions and failures are events at the end of a column: a share q = h_1 + h_2 of those at risk, as a rate -log(1 - q).
    Cancellations are spread over it, so that on average half of the events are missing from their exposure: rate h_3 / (1 - q/2).
    In the open column all are rates already. `log_cap` bounds the tail (tails.extended).
    """
    closed = np.maximum(hazards[:, :-1], LEAST * np.array([[1.0], [0.0], [0.0]]))
    ending = closed[:2].sum(axis=0)
    kept = np.minimum(ending, MOST)
    rates = np.concatenate([closed[:2] * (-np.log1p(-kept) / ending), closed[2:] / (1.0 - kept / 2.0)])
    cumulative = np.cumsum(rates.sum(axis=0))
    slope = float(np.clip(hazards[:, -1].sum(), 0.02, 50.0)) / spread
    knots, height = tails.extended(log_t, cumulative[1:], slope, log_cap)
    open_rates = np.maximum(hazards[:, -1:], LEAST * np.array([[1.0], [0.0], [0.0]]))
    share = np.concatenate([rates, np.repeat(open_rates, len(knots) + 2 - rates.shape[1], axis=1)], axis=1)
    return Incidence(Curve(knots, height, float(cumulative[0]), tails.SLOPE, support), share / share.sum(axis=0))
