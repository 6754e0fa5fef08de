"""Normal scores of stages that hang together: what a host's state and an attempt's setup say about the rest, each counted once.

With one state Z per host and scenario, lambda_j its share in the variance of stage j's log residual, R_j the stage's own part,

    eps_j = sqrt(lambda_j) Z + sqrt(1 - lambda_j) R_j,      time_j = Q_j(Phi(eps_j)),

every marginal stays exact. `rho` is the whole correlation of setup and service of one attempt, host state included, so their
own parts correlate by (rho - sqrt(lambda_S lambda_T)) / sqrt((1 - lambda_S)(1 - lambda_T)). A finished stage fixes its eps, a
running one bounds it from below; both then speak about Z and about the attempt's service.

All this is reckoned on normal scores. Where pairs show a joint law that is not normal (`bend`), a service's score is bent at the
end, given its setup's, and what was observed of it is straightened first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from predictors.distribution import Array
from predictors.joint.bend import Bend
from predictors.joint.quantile_table import Index, Timings
from predictors.joint.streams import Keys, stream, uniforms

SWEEPS = 8
"""Gibbs sweeps where several running attempts bound one host's state together; one attempt alone needs none."""
MOST = 0.999
"""Bound on a correlation and on a share, so that something of a stage's own remains."""
TINY = 1e-300
"""Least probability whose normal score is taken: scores stay finite."""


@dataclass(frozen=True)
class Links:
    """How n stages hang together.

    `group` (n,): which host state a stage has part in; `share` (n,): lambda, in [0, 1); `partner` (n,): the setup whose own part
    this stage follows, -1 for none; `rho` (n,): whole correlation with the partner; `bend`: how it differs from a normal law,
    for stages with a correlation: without one they are independent.
    """

    group: Index
    share: Array
    partner: Index
    rho: Array
    bend: Bend | None = None

    @cached_property
    def first(self) -> Index:
        """Stages without a partner."""
        return np.flatnonzero(self.partner < 0)

    @cached_property
    def second(self) -> Index:
        """Stages that follow a partner."""
        return np.flatnonzero(self.partner >= 0)

    @cached_property
    def shared(self) -> bool:
        """Whether any stage has part in a host's state; spares arithmetic where none does, and changes no answer."""
        return bool(self.share.any())

    @cached_property
    def own(self) -> Array:
        """Correlation of a stage's own part with its partner's, 0 where there is none; shape (n,)."""
        mate = self.share[self.partner]
        left = (self.rho - np.sqrt(self.share * mate)) / np.sqrt((1.0 - self.share) * (1.0 - mate))
        return np.where(self.partner < 0, 0.0, np.clip(left, -MOST, MOST))

    def bent(self, rows: Index, eps: Array, score: Array) -> Array:
        """Scores (n_rows, n_scenarios) of stages, drawn on the normal scale, as their joint law with the partner has them.

        eps (n, n_scenarios) holds the partners' scores.
        """
        return self._turned(Bend.bent, rows, eps, score)

    def straight(self, rows: Index, eps: Array, score: Array) -> Array:
        """The inverse of `bent`; score (n_rows, n_scenarios or 1)."""
        return self._turned(Bend.straight, rows, eps, score)

    def _turned(self, turn: Callable[[Bend, Array, Array, Array], Array], rows: Index, eps: Array, score: Array) -> Array:
        follow = np.flatnonzero((self.partner[rows] >= 0) & (self.rho[rows] != 0.0))
        if self.bend is None or not len(follow):
            return score
        turned, mine = np.array(np.broadcast_to(score, (len(rows), eps.shape[1]))), rows[follow]
        turned[follow] = turn(self.bend, self.rho[mine], eps[self.partner[mine]], turned[follow])
        return turned


@dataclass(frozen=True)
class Scores:
    """Normal scores of n stages per scenario, and the law each was drawn from given its host's state and its partner.

    eps, mean: (n, n_scenarios); sd: (n,). Mean and sd are on the normal scale, eps is what times are read from.
    """

    eps: Array
    mean: Array
    sd: Array


def draw_scores(timings: Timings, links: Links, own: Array, own_keys: Keys, host_keys: Keys) -> Scores:
    """Draw eps of every stage given all that was observed.

    own: (n, n_scenarios) uniforms of the stages; own_keys (n,) and host_keys (n_groups,) are the streams of the rest. What is
    observed of a stage changes draws in its own group only.
    """
    n_scenarios = own.shape[1]
    state = ndtri(uniforms(host_keys, n_scenarios)) if links.shared else np.zeros((len(host_keys), n_scenarios))
    observed = np.flatnonzero(timings.observed)
    known = np.zeros(own.shape) if len(observed) else own
    if len(observed):
        state = _observe(timings, links, own, own_keys, host_keys, state, known)
    sd = np.sqrt((1.0 - links.share) * (1.0 - links.own**2))
    mean = np.sqrt(links.share)[:, None] * state[links.group] if links.shared else np.zeros(own.shape)
    eps = ndtri(own)
    eps *= sd[:, None]
    eps += mean
    if len(observed):
        eps[observed] = known[observed]
    second = links.second
    if len(second):
        said = _partner_says(links, eps, state, second)
        mean[second] += said
        eps[second] += np.where(timings.observed[second, None], 0.0, said)
        eps[second] = links.bent(second, eps, eps[second])
    return Scores(eps, mean, sd)


def _partner_says(links: Links, eps: Array, state: Array, rows: Index) -> Array:
    """What their partners' own parts add to the mean of second stages."""
    mate, rest = links.partner[rows], np.sqrt(1.0 - links.share)
    if not links.shared:
        return np.asarray(links.own[rows, None] * eps[mate])
    part = (eps[mate] - np.sqrt(links.share[mate])[:, None] * state[links.group[mate]]) / rest[mate, None]
    return np.asarray((rest * links.own)[rows, None] * part)


def _beyond(mean: Array, sd: Array, passed: Array, level: Array) -> Array:
    """Normal draws at `level` of what lies above the score already passed; all (n, n_scenarios) or (n, 1)."""
    above = ndtr((mean - passed) / sd)
    return np.asarray(mean - sd * ndtri(np.maximum(above * (1.0 - level), TINY)))


def _observe(timings: Timings, links: Links, own: Array, own_keys: Keys, host_keys: Keys, state: Array, eps: Array) -> Array:
    """Fill eps of observed stages and return the host states given them, shape (n_groups, n_scenarios).

    An attempt alone on its host is exact at once: its eps has its own conditional law, and Z that given eps. Where several
    attempts speak about one state, Gibbs sweeps bring their draws together.
    """
    seen = timings.observed
    order = [rows[seen[rows]] for rows in (links.first, links.second)]
    for rows in order:
        follows = links.partner[rows] >= 0
        rho = np.where(follows, links.rho[rows], 0.0)[:, None]
        mean = np.where(follows[:, None], rho * eps[links.partner[rows]], 0.0)
        eps[rows] = _drawn(timings, links, rows, eps, mean, np.sqrt(1.0 - rho**2), own[rows])
    given = _state_given(links, eps, order, state)
    crowded = np.bincount(links.group[order[0]], minlength=len(state)) > 1
    if not crowded.any():
        return given
    order = [rows[crowded[links.group[rows]]] for rows in order]
    sd = np.sqrt((1.0 - links.share) * (1.0 - links.own**2))[:, None]
    for sweep in range(SWEEPS):
        again = uniforms(stream(sweep, "sweep", own_keys), own.shape[1])
        mean = np.sqrt(links.share)[:, None] * given[links.group]
        for rows in order:
            second = rows[links.partner[rows] >= 0]
            mean[second] += _partner_says(links, eps, given, second)
            eps[rows] = _drawn(timings, links, rows, eps, mean[rows], sd[rows], again[rows])
        fresh_state = ndtri(uniforms(stream(sweep, "sweep", host_keys), own.shape[1]))
        given[crowded] = _state_given(links, eps, order, fresh_state)[crowded]
    return given


def _drawn(timings: Timings, links: Links, rows: Index, eps: Array, mean: Array, sd: Array, level: Array) -> Array:
    """Eps of observed stages on the normal scale: known where finished, else beyond what has passed."""
    known = timings.known[rows][:, None]
    passed = links.straight(rows, eps, ndtri(timings.passed[rows][:, None]))
    return np.where(np.isnan(known), _beyond(mean, sd, passed, level), links.straight(rows, eps, known))


def _state_given(links: Links, eps: Array, order: Sequence[Index], state: Array) -> Array:
    """Z per group given the eps of observed stages: a normal posterior, the prior draw `state` giving its spread."""
    load, rest = np.sqrt(links.share), np.sqrt(1.0 - links.share)
    precision, pull = np.ones(len(state)), np.zeros(state.shape)
    for rows in order:
        mate = links.partner[rows]
        carried = np.where(mate >= 0, rest[rows] * links.own[rows] / rest[mate], 0.0)
        loading = load[rows] - carried * load[mate]
        noise = rest[rows] ** 2 * (1.0 - links.own[rows] ** 2)
        partner_eps = np.where(mate[:, None] >= 0, eps[mate], 0.0)
        np.add.at(precision, links.group[rows], loading**2 / noise)
        np.add.at(pull, links.group[rows], (loading / noise)[:, None] * (eps[rows] - carried[:, None] * partner_eps))
    return np.asarray(pull / precision[:, None] + state / np.sqrt(precision)[:, None])


def remaining(timings: Timings, eps: Array) -> Array:
    """Remaining times in s of stages with scores eps, both (n, n_scenarios): Q of the remaining time at that score's level."""
    running = np.flatnonzero(timings.passed > 0.0)
    if len(running):
        eps = eps.copy()
        left = ndtr(-eps[running]) / (1.0 - timings.passed[running, None])
        eps[running] = -ndtri(np.clip(left, TINY, 1.0))
    return timings.table.at(timings.row, eps)


def within(timings: Timings, links: Links, scores: Scores, rows: Index, left_s: Array) -> Array:
    """P(stage ends within left_s | host state, partner) of the stages at `rows`: left_s and the result (n_rows, n_scenarios)."""
    score = timings.table.score(timings.row[rows], left_s)
    mean, spread = scores.mean[rows], scores.sd[rows][:, None]
    p = ndtr((links.straight(rows, scores.eps, score) - mean) / spread)
    running = np.flatnonzero(timings.passed[rows] > 0.0)
    if len(running):
        runs, mean, spread = rows[running], mean[running], spread[running]
        passed = timings.passed[runs, None]
        whole = links.straight(runs, scores.eps, -ndtri((1.0 - passed) * ndtr(-score[running])))
        before = links.straight(runs, scores.eps, ndtri(passed))
        above = np.maximum(ndtr((mean - before) / spread), TINY)
        p[running] = np.clip(1.0 - ndtr((mean - whole) / spread) / above, 0.0, 1.0)
    return np.asarray(p)


def feasible_shares(rho: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Host shares of two linked stages scaled down to the largest c for which rho can hold, all (n,).

    A shared state pulls both the same way, so a strongly negative rho leaves it little room; rho stands, being measured on pairs:
    c = (1 - rho^2) / (lambda_S + lambda_T - 2 rho sqrt(lambda_S lambda_T)).
    """
    room = first + second - 2.0 * rho * np.sqrt(first * second)
    scale = np.minimum(1.0, MOST * (1.0 - rho**2) / np.maximum(room, 1e-12))
    return scale * first, scale * second
