"""Crossed and nested group effects on log time, partially pooled, with variance components from the data.

Sums are NumPy's own, never the linear algebra library's, whose bits depend on its threads.

Every key is a set of context fields; a group is one combination of their values; the leaf key is the exact configuration.
Effects are estimated coarse to fine on configuration means. For key k the effects of keys that only refine k are not
subtracted but integrated out: they are noise of variance tau_k^2 between the configurations of one group. With m_g
the mean of a group's configurations, weighted by 1 / (tau_k^2 + v_c), and P_g the sum of these weights,

    E[m_g^2] = sigma_k^2 + 1 / P_g   gives sigma_k^2 (weighted moments),   u_g = m_g sigma_k^2 / (sigma_k^2 + 1 / P_g).

A component may differ between regimes (state and family): hosts that agree on cached loads may differ on cold ones. Where a key
refines the regimes, its component is estimated in each, pulled to the common one as if by REGIME_PULL groups.

The variance left about a context's centre starts at sigma_k^2 per key and is reduced where its group was seen: with A the
variance left in k and all keys it refines, precision P_g turns A into A / (1 + A P_g). A group never seen keeps all of it.

Hosts with a measured profile start where their rates put them (`seeding`): m_g is shrunk to that start with the variance of hosts
about their starts in the place of sigma_k^2, and a profiled host never seen stands at its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictors.contexts import CATEGORIES, NUMBERS, Context
from predictors.distribution import Array
from predictors.seeding import Design, Seed, learned

Ints = NDArray[np.int64]
Fields = tuple[str, ...]
Label = tuple[str | None, ...]

SHAPE = "shape"
"""Stands in a key for the numbers of a context, to the octave."""
LEAF: Fields = (*CATEGORIES, SHAPE)
CANDIDATES: tuple[Fields, ...] = (
    ("state",),
    ("family",),
    ("device",),
    ("runtime",),
    ("precision",),
    ("mode",),
    ("model",),
    ("host",),
    ("state", "family"),
    ("state", "host"),
    ("device", "family"),
    ("device", "model"),
    ("family", "mode"),
    ("model", "mode"),
    ("family", "host"),
    ("model", "host"),
    ("state", "family", "host"),
    ("device", "family", "model"),
    ("device", "family", "model", "mode"),
    ("family", "host", "model"),
    ("state", "family", "host", "model"),
    ("family", "model", "shape"),
    ("state", "family", "model", "shape"),
)
REGIME: Fields = ("state", "family")
REGIME_PULL = 3.0
SEEN = 1e12
"""Precision of a value that never varied: seeing it again leaves nothing unknown about it."""


@dataclass(frozen=True)
class Effects:
    """Pooled effects, per key k.

    `groups` numbers its labels; `value` and `precision`, shape (n_groups + 1,), end in a 0 for labels never seen; `within[k]`
    lists the keys that k refines, itself among them. `variance` and `novel`, shape (n_keys, n_regimes + 1), are sigma_k^2 of
    seen and unseen groups in each regime, the last column for regimes never seen. `seed` is None where no host has a profile.
    """

    keys: tuple[Fields, ...]
    groups: tuple[dict[Label, int], ...]
    value: tuple[Array, ...]
    precision: tuple[Array, ...]
    variance: Array
    novel: Array
    within: tuple[tuple[int, ...], ...]
    regimes: dict[Label, int]
    seed: Seed | None = None

    def codes(self, contexts: Sequence[Context]) -> Ints:
        """Group of each context under each key, shape (n_keys, n_contexts); -1 where it was never seen."""
        found = [[groups.get(label(c, key), -1) for c in contexts] for key, groups in zip(self.keys, self.groups, strict=True)]
        return np.array(found, dtype=np.int64).reshape(len(self.keys), len(contexts))

    def centre(self, codes: Ints) -> Array:
        """Sum of the effects, shape (n_contexts,)."""
        total = np.zeros(codes.shape[1])
        for values, code in zip(self.value, codes, strict=True):
            total += values[code]
        return total

    def regime(self, contexts: Sequence[Context]) -> Ints:
        """Regime of each context, -1 where never seen."""
        return np.array([self.regimes.get(label(c, REGIME), -1) for c in contexts], dtype=np.int64)

    def begun(self, codes: Ints, hosts: Sequence[str | None]) -> Array:
        """What the rates of hosts never seen add to that sum, shape (n_contexts,): 0 for all others."""
        if self.seed is None:
            return np.zeros(len(hosts))
        starts = [self.seed.starts.get(host or "") for host in hosts]
        unseen = codes[self.seed.key] < 0
        return np.where(unseen, [0.0 if start is None else start.log_time for start in starts], 0.0)

    def of_host(self, context: Context) -> float:
        """The effect of a profiled host, 0 of any other: from its start to what its own history says."""
        start = None if self.seed is None else self.seed.starts.get(context.host or "")
        if start is None:
            return 0.0
        group = self._host_group(context)
        return start.log_time if group is None else float(self.value[self._host_key][group])

    def rests_on_rates(self, context: Context) -> bool:
        """Whether the host has a profile and was never seen."""
        profiled = self.seed is not None and (context.host or "") in self.seed.starts
        return profiled and self._host_group(context) is None

    @property
    def _host_key(self) -> int:
        return 0 if self.seed is None else self.seed.key

    def _host_group(self, context: Context) -> int | None:
        return self.groups[self._host_key].get(label(context, self.keys[self._host_key]))

    def left(self, codes: Ints, regime: Ints, hosts: Sequence[str | None] = ()) -> Array:
        """Variance left about that sum, shape (n_contexts,)."""
        parts = np.where(codes >= 0, self.variance[:, regime], self.novel[:, regime])
        if self.seed is not None:
            known = [self.seed.starts.get(host or "") for host in hosts]
            own = np.array([np.nan if start is None else start.variance for start in known])
            parts[self.seed.key] = np.where(np.isnan(own), parts[self.seed.key], own)
        for k, code in enumerate(codes):
            shares = list(self.within[k])
            total = parts[shares].sum(axis=0)
            parts[shares] *= 1.0 / (1.0 + total * self.precision[k][code])
        return np.asarray(parts.sum(axis=0), dtype=np.float64)


def label(context: Context, key: Fields) -> Label:
    """The context's values under a key; the leaf key is its exact configuration."""
    return (context.configuration(),) if key == LEAF else tuple(_value(context, name) for name in key)


def _value(context: Context, name: str) -> str | None:
    """Value of a field; the shape is what ends the name of a configuration."""
    value: str | None = (
        "|".join(context.configuration().rsplit("|", len(NUMBERS))[1:]) if name == SHAPE else getattr(context, name)
    )
    return value


@dataclass(frozen=True)
class Crossing:
    """Configurations crossed by keys: `code` (n_keys, n_configurations) numbers groups from 0, `size` counts them.

    `refines[k, j]` says that key k refines key j or is j. The first key holds whatever never varied. `regime` numbers the
    configurations' regimes, and `own[k]` says that key k refines them.
    """

    keys: tuple[Fields, ...]
    code: Ints
    size: Ints
    groups: tuple[dict[Label, int], ...]
    refines: NDArray[np.bool_]
    regime: Ints
    regimes: dict[Label, int]
    own: NDArray[np.bool_]


def crossing(configurations: Sequence[Context]) -> Crossing:
    """Keys that tell the configurations apart, coarse to fine. Keys that group them alike become one.

    A united key is unseen where any of its fields is: which of them matters cannot be known from data in which
    they never parted.
    """
    n = len(configurations)
    fields = {name: _numbered([_value(c, name) for c in configurations]) for name in LEAF}
    united: dict[bytes, list[str]] = {}
    codes: dict[bytes, Ints] = {}
    for key in (*CANDIDATES, LEAF):
        code = np.arange(n) if key == LEAF else _joint([fields[name] for name in key])
        united.setdefault(code.tobytes(), []).extend(key)
        codes[code.tobytes()] = code
    constant = np.zeros(n, dtype=np.int64).tobytes()
    leaf = np.arange(n).tobytes()
    order = sorted((k for k in codes if k not in {constant, leaf}), key=lambda k: int(codes[k].max(initial=0)))
    fixed = [f for f in LEAF if not fields[f].any()]
    names = [tuple(fixed), *(tuple(f for f in LEAF if f in united[k] and f not in fixed) for k in order), LEAF]
    code = np.stack([np.zeros(n, dtype=np.int64), *(codes[k] for k in order), np.arange(n)])
    groups = [
        {label(c, key): int(g) for c, g in zip(configurations, row, strict=True)} for key, row in zip(names, code, strict=True)
    ]
    size = code.max(axis=1) + 1
    refines = np.array([[_refines(code[k], size[k], code[j]) for j in range(len(code))] for k in range(len(code))])
    regime = _joint([fields[name] for name in REGIME])
    regimes = {label(c, REGIME): int(r) for c, r in zip(configurations, regime, strict=True)}
    own = np.array([_refines(row, g, regime) for row, g in zip(code, size, strict=True)])
    return Crossing(tuple(names), code, size, tuple(groups), refines, regime, regimes, own)


def _numbered(values: Sequence[object]) -> Ints:
    """Values numbered in order of first appearance."""
    seen: dict[object, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values], dtype=np.int64)


def _joint(codes: Sequence[Ints]) -> Ints:
    """Combinations of codes numbered in order of first appearance."""
    joint = codes[0]
    for code in codes[1:]:
        joint = joint * (int(code.max(initial=0)) + 1) + code
        _, first, joint = np.unique(joint, return_index=True, return_inverse=True)
        joint = np.argsort(np.argsort(first))[joint]
    return joint.astype(np.int64)


def _refines(fine: Ints, size: int, coarse: Ints) -> bool:
    """Whether every group of `fine` lies within one group of `coarse`."""
    first = np.full(size, -1, dtype=np.int64)
    first[fine[::-1]] = coarse[::-1]
    return bool((first[fine] == coarse).all())


@dataclass
class Pool:
    """Effects in the making: `value` and `precision` per key and group, `variance` per key and regime, the last in common.

    `design` holds the rates of hosts, None without any; `told` are the means of hosts in the last pass, before shrinking, with
    their sampling variances, and by how much the pass moved their effects to centre them.
    """

    cross: Crossing
    value: list[Array]
    precision: list[Array]
    variance: Array
    design: Design | None = None
    told: tuple[Array, Array, float] | None = None

    @classmethod
    def start(cls, cross: Crossing, design: Design | None = None) -> Pool:
        """Every effect zero, every component of equal size."""
        variance = np.full((len(cross.keys), len(cross.regimes) + 1), 0.1)
        variance[0] = 0.0
        return cls(cross, [np.zeros(size) for size in cross.size], [np.zeros(size) for size in cross.size], variance, design)

    def contributions(self) -> Array:
        """Effect of each key on each configuration, shape (n_keys, n_configurations)."""
        return np.stack([value[code] for value, code in zip(self.value, self.cross.code, strict=True)])

    def sweep(self, mean: Array, noise: Array) -> float:
        """One pass over the keys, given configuration means and their sampling variances v_c.

        Effects are centred over the configurations; returned is what the intercept gains, so that a context
        unseen in everything lies at the middle of all configurations.
        """
        gained = 0.0
        parts = self.contributions()
        most = float(np.var(mean))  # keys that hardly part could offset each other without end
        for k in range(1, len(self.cross.keys)):
            code, size = self.cross.code[k], int(self.cross.size[k])
            finer = self.cross.refines[:, k] & ~self.cross.refines[k]
            others = ~finer
            others[k] = False
            rest = mean - gained - parts[others].sum(axis=0)
            weight = 1.0 / (self.variance[finer].sum(axis=0)[self.cross.regime] + noise)
            precision = summed(code, weight, size)
            centre = summed(code, weight * rest, size) / precision
            regime = np.empty(size, dtype=np.int64)
            regime[code] = self.cross.regime
            found = _components(centre, 1.0 / precision, regime, self.variance[k], own=bool(self.cross.own[k]))
            self.variance[k] = np.minimum(found, most)
            self.precision[k] = precision
            variance = self.variance[k][regime]
            if self.design is None or k != self.design.key:
                value = centre * variance / (variance + 1.0 / precision)
            else:
                start, variance = self._starts(self.design, centre, 1.0 / precision, variance)
                value = start + (centre - start) * variance / (variance + 1.0 / precision)
            shift = float(value[code].mean())
            if self.design is not None and k == self.design.key:
                self.told = centre, 1.0 / precision, shift
            self.value[k], parts[k] = value - shift, value[code] - shift
            gained += shift
        return gained

    def _starts(self, design: Design, mean: Array, noise: Array, variance: Array) -> tuple[Array, Array]:
        """What hosts are shrunk to, and their variance about it: 0 and the component, but for those with a profile."""
        start = np.zeros(len(mean))
        seed = learned(design, mean, noise, float(self.variance[design.key, -1]))
        if seed is None:
            return start, variance
        for group in np.flatnonzero(design.row >= 0):
            known = seed.starts[design.hosts[design.row[group]]]
            start[group], variance[group] = known.log_time, known.variance
        return start, variance

    def _seed(self, unprofiled: float) -> Seed | None:
        """The seed of the last pass, relative to effects as they were centred; hosts that never varied are all one group."""
        if self.design is None:
            return None
        mean, noise, shift = self.told or (np.zeros(1), np.zeros(1), 0.0)
        seed = learned(self.design, mean, noise, unprofiled)
        return None if seed is None else seed.moved(-shift)

    def finished(self, novel_sd: float, residual_variance: float) -> Effects:
        """The effects, ready for contexts seen and unseen.

        Few groups say little about the next one: its component is averaged with what is usual here, the median component and the
        residual variance together, as if that came from one group more. What never varied has novel_sd^2.
        """
        size = self.cross.size.astype(np.float64)[:, None]
        usual = np.median(self.variance[1:], axis=0) + residual_variance
        novel = (size * self.variance + np.minimum(usual, novel_sd**2)) / (size + 1.0)
        novel[0] = novel_sd**2
        variance = self.variance.copy()
        variance[0] = novel_sd**2
        precision = [np.full(int(self.cross.size[0]), SEEN), *self.precision[1:]]
        return Effects(
            keys=self.cross.keys,
            groups=self.cross.groups,
            value=tuple(np.append(v, 0.0) for v in self.value),
            precision=tuple(np.append(p, 0.0) for p in precision),
            variance=variance,
            novel=novel,
            within=tuple(tuple(np.flatnonzero(row).tolist()) for row in self.cross.refines),
            regimes=self.cross.regimes,
            seed=self._seed(float(novel[self.design.key, -1])) if self.design is not None else None,
        )


def summed(group: Ints, values: Array, n_groups: int) -> Array:
    """Sums by group, shape (n_groups,), added in the order of rows."""
    return np.bincount(group, values, n_groups).astype(np.float64, copy=False)


def _components(centre: Array, noise: Array, regime: Ints, before: Array, *, own: bool) -> Array:
    """sigma^2 per regime and in common, from centre ~ (0, sigma^2 + noise): moments, weighted as a normal likelihood would."""
    common = 1.0 / (before[-1] + noise) ** 2
    after = np.full(len(before), max(float((common * (centre**2 - noise)).sum() / common.sum()), 0.0))
    if own:
        n = len(before) - 1
        weight = 1.0 / (before[regime] + noise) ** 2
        total, count = summed(regime, weight, n), summed(regime, np.ones(len(regime)), n)
        prior = REGIME_PULL * total / np.maximum(count, 1.0)
        after[:-1] = np.maximum((summed(regime, weight * (centre**2 - noise), n) + prior * after[-1]) / (total + prior), 0.0)
    return after
