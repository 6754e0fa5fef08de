"""Recorded work of a world whose laws are known: the situations of the truth table, in each family.

A row's scale is (overhead + rate * size) * host * co-runners * regime * what happens to the world by then. Co-runners follow
from when rows begin and end, so durations are drawn in order of beginning. Of the scale nothing is told but its causes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.truth_shapes import Shape, bimodal, heavy, log_normal, mixed
from predictors.contexts import Context
from predictors.distribution import Array
from predictors.resources import NONE, Rates
from service.recorded import Recorded
from telemetry.words import Ended

FAMILIES = {"heavy": heavy, "bimodal": bimodal, "regimes": log_normal}
HOSTS = ("ash", "elm", "fir", "oak")
SPEED = {"ash": 1.0, "elm": 1.25, "fir": 0.8, "oak": 1.6, "yew": 1.3}
"""Scale of a host; yew is met late, if at all."""
KINDS = {"decode": 1.0, "resize": 0.4}
SIZES = (128.0, 512.0)
OVERHEAD, PER_ITEM = 0.2, 1.0 / 256.0
PER_CORUNNER = 0.04
AT_ONCE = 8.0
"""Rows running at a time, about."""
SLOW, FAST_S, SLOW_S = 1.7, 60.0, 30.0
"""How much slower a host in its slow regime is, and how long regimes last on average, s."""
NEW_HOST, FIRST = "yew", 10
"""The host met late, and how many of a crowd on it have finished when it is asked about again."""
UNMEASURED = "gum"
"""A host that is as new, and has no profile."""
RATE, RATE_OFF = "matmul_threads_1_flop_per_s", 0.05
"""What probes of a host measure, and its standard deviation in log units from the speed of the work."""
AGES = (0.25, 0.5, 1.0, 1.5)
"""Ages asked about, in medians of the context."""


@dataclass(frozen=True)
class Situation:
    """What happens in a world of `rows` rows, of which those from `judged_from` on count.

    From its row `from_row` on, durations on `slow_hosts` are `slower` times as long. `cancelled` is the share of requests
    cancelled; `crowd` attempts begin at once on a new host at the end; `aged` asks for remaining times. Where hosts are
    `measured`, so many rows begin at once at the end on a new host with a profile, and as many on one without.
    """

    rows: int
    judged_from: int
    slow_hosts: tuple[str, ...] = ()
    slower: float = 1.0
    from_row: int = 0
    cancelled: float = 0.0
    crowd: int = 0
    aged: bool = False
    measured: int = 0


@dataclass(frozen=True)
class World:
    """Rows as recorded, and what no one is told: arrays of shape (n_rows,).

    `scale` is that of each row's law, `whole_s` how long it would have taken uninterrupted. `rates` are those of hosts measured
    before the first row.
    """

    rows: Recorded
    shape: Shape
    scale: Array
    whole_s: Array
    queries: Mapping[int, Sequence[float]] = field(default_factory=dict)
    rates: Rates = field(default_factory=lambda: NONE)

    def cdf(self, row: int, t_s: float) -> float:
        """F_true(t | everything that decides the row's law)."""
        return float(self.shape.cdf(np.array(t_s / self.scale[row])))

    def quantile(self, row: int, p: float) -> float:
        """The duration in s that the row stays within with probability p."""
        return float(self.scale[row] * self.shape.quantile(np.array(p)))


def world(family: str, situation: Situation, seed: int) -> World:
    """The world of a family, a situation and a seed: the same three give the same rows."""
    rng = np.random.default_rng([seed, list(FAMILIES).index(family)])
    shape = FAMILIES[family]()
    n = situation.rows
    typical = float(shape.quantile(np.array(0.5))) * 0.7 * (OVERHEAD + PER_ITEM * float(np.mean(SIZES))) * 1.3
    begun = np.cumsum(rng.exponential(typical / AT_ONCE, n))
    hosts, kinds, sizes = rng.choice(HOSTS, n), rng.choice(list(KINDS), n), rng.choice(SIZES, n)
    paces = _paces(rng, begun, typical) if family == "regimes" else {host: np.ones(n) for host in HOSTS}
    later = np.arange(n) >= situation.from_row
    pace = np.array([paces[host][i] for i, host in enumerate(hosts)])
    pace *= np.where(later & np.isin(hosts, situation.slow_hosts), situation.slower, 1.0)
    asked = zip(hosts.tolist(), kinds.tolist(), sizes.tolist(), strict=True)
    known = [Context(host, "cpu", kind, "v1", size_in=size) for host, kind, size in asked]
    made = _happening(shape, known, begun, pace, rng)
    if situation.cancelled:
        made = _cancelled(made, situation.cancelled, rng)
    if situation.crowd:
        made = _crowded(made, situation.crowd, rng)
    if situation.measured:
        made = _measured(made, situation.measured, rng)
    return replace(made, queries=_aged(made, situation.judged_from)) if situation.aged else made


def _happening(shape: Shape, known: list[Context], begun: Array, pace: Array, rng: np.random.Generator) -> World:
    """Rows with durations and co-runners, drawn in order of beginning."""
    noise = shape.quantile(rng.random(len(begun)))
    contexts, scale = [], np.empty(len(begun))
    ends: dict[str | None, list[float]] = {}
    for i, one in enumerate(known):
        running = [end for end in ends.get(one.host, []) if end > begun[i]]
        contexts.append(replace(one, corunners=float(len(running))))
        scale[i] = scale_of(contexts[-1]) * pace[i]
        ends[one.host] = [*running, float(begun[i] + scale[i] * noise[i])]
    return World(_recorded(contexts, begun, scale * noise), shape, scale, scale * noise)


def scale_of(context: Context) -> float:
    """Scale in s of a context's law, in a world where nothing happens."""
    work = (OVERHEAD + PER_ITEM * (context.size_in or 0.0)) * KINDS[context.family or ""]
    return work * SPEED.get(context.host or "", 1.0) * (1.0 + PER_CORUNNER * (context.corunners or 0.0))


def _crowded(made: World, crowd: int, rng: np.random.Generator) -> World:
    """`crowd` attempts begin at once on a new host; one more begins when FIRST have finished, and one when all have."""
    context = Context(NEW_HOST, "cpu", "decode", "v1", size_in=512.0, corunners=0.0)
    scale = np.full(crowd + 2, scale_of(context))
    whole = scale * made.shape.quantile(rng.random(crowd + 2))
    together = float(made.rows.known_s.max()) + 1.0
    finished = np.sort(whole[:crowd])
    begun = np.append(np.full(crowd, together), np.nextafter(together + finished[[FIRST - 1, -1]], np.inf))
    begun = np.append(made.rows.begun_s, begun)
    scale, whole = np.append(made.scale, scale), np.append(made.whole_s, whole)
    return World(_recorded([*made.rows.contexts, *[context] * (crowd + 2)], begun, whole), made.shape, scale, whole)


def _measured(made: World, count: int, rng: np.random.Generator) -> World:
    """Rows begin at once on two hosts never met, work like that before: probes have told the speed of one of them."""
    like = rng.choice(len(made.scale), count)
    there = [replace(made.rows.contexts[i], host=NEW_HOST, corunners=0.0) for i in like]
    contexts = [*made.rows.contexts, *there, *[replace(context, host=UNMEASURED) for context in there]]
    scale = np.append(made.scale, [scale_of(context) for context in there] * 2)
    whole = np.append(made.whole_s, scale[-2 * count :] * made.shape.quantile(rng.random(2 * count)))
    begun = np.append(made.rows.begun_s, np.full(2 * count, float(made.rows.known_s.max()) + 1.0))
    rates = {host: {RATE: float(np.exp(rng.normal(0.0, RATE_OFF))) / SPEED[host]} for host in (*HOSTS, NEW_HOST)}
    return World(_recorded(contexts, begun, whole), made.shape, scale, whole, rates=rates)


def new_shape(family: str) -> Shape:
    """The shape on a host never met: whether it is in its slow regime nobody can know."""
    shape = FAMILIES[family]()
    return mixed(shape, SLOW_S / (FAST_S + SLOW_S), SLOW) if family == "regimes" else shape


def _paces(rng: np.random.Generator, begun: Array, typical: float) -> dict[str, Array]:
    """Slowness of each host at each row's beginning: hosts go from one regime to the other on their own."""
    found = {}
    for host in HOSTS:
        lasting = rng.exponential(1.0, (4_000, 2)) * typical * np.array([FAST_S, SLOW_S])
        turns = np.cumsum(lasting.ravel())
        found[host] = np.where(np.searchsorted(turns, begun, side="right") % 2 == 1, SLOW, 1.0)
    return found


def _recorded(contexts: list[Context], begun: Array, duration: Array) -> Recorded:
    n = len(begun)
    return Recorded(
        observation_id=[f"r{i:05d}" for i in range(n)],
        attempt=np.zeros(n, dtype=np.int64),
        phase=["service"] * n,
        contexts=contexts,
        run=np.arange(n, dtype=np.int64),
        duration_s=duration,
        ended=[Ended.COMPLETED] * n,
        begun_s=begun,
        known_s=begun + duration,
        timed=True,
        left_out=0,
    )


def _cancelled(made: World, share: float, rng: np.random.Generator) -> World:
    """Requests give up after exponential times, whose mean in typical durations is such that `share` of them do."""
    patience = rng.exponential(1.0, len(made.whole_s)) * float(np.median(made.whole_s))
    low, high = 1e-3, 1e3
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if np.mean(patience * middle < made.whole_s) > share else (low, middle)
    given_up: NDArray[np.bool_] = patience * low < made.whole_s
    duration = np.where(given_up, patience * low, made.whole_s)
    rows = replace(
        made.rows,
        duration_s=duration,
        ended=[Ended.CANCELLED if gone else Ended.COMPLETED for gone in given_up],
        known_s=made.rows.begun_s + duration,
    )
    return replace(made, rows=rows)


def _aged(made: World, judged_from: int) -> dict[int, list[float]]:
    """Every row that counts is asked about at AGES of its context's median, as long as it still runs."""
    return {
        row: [age for age in (share * typical_s(made, row) for share in AGES) if age < made.whole_s[row]]
        for row in range(judged_from, len(made.rows))
    }


def typical_s(made: World, row: int) -> float:
    """Median of a row's context in s, whatever happens to its host: an age picked by what is not told would tell it."""
    return scale_of(made.rows.contexts[row]) * float(made.shape.quantile(np.array(0.5)))
