"""A small torch network: embeddings of what was known before the start, and hazards on bins of log time at its end.

Every value of a category has a vector; while it learns, values are replaced by "unknown" at random, so that the vector of unknown
ones, which answers for values never seen, is trained as well. Two hidden layers lead to one hazard per bin of standardised log
time. Completed rows count by S(before their bin) h(bin), censored ones by S up to where they left, late ones from their entry on.

Learns from at most designs.MOST_ROWS rows in at most STEPS steps, EPOCHS passes if they are few, on one thread, with draws of its
own. Answers are read off NumPy arrays: torch is needed to fit alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from predictors import tails
from predictors.baselines.alone import Alone, Pair, alone
from predictors.baselines.designs import WORDS, NumberScaling, Rows, Scale, number_scaling, numbered, rows_of, words_of
from predictors.baselines.quantile_curves import Knots
from predictors.contexts import NUMBERS
from predictors.distribution import Array
from predictors.effects import Ints
from predictors.frames import Frame
from telemetry.errors import BadField

STEPS = 1_500
EPOCHS = 40
MOST_BATCH, LEAST_BATCH = 256, 16
HIDDEN = 64
MOST_WIDTH = 12
UNKNOWN_SHARE = 0.15
RATE = 3e-3
DECAY = 1e-3
SEED = 20_261_129
SHARES: Array = np.concatenate([[0.005, 0.02], np.arange(1, 32) / 32.0, [0.98, 0.99, 0.995, 1.0]])
LEAST_HAZARD = 1e-9
BEFORE = 1e-3
EMBEDDINGS = len(WORDS)
"""Weights are listed as one table per name in WORDS, then matrix and bias of each of three layers."""


@dataclass(frozen=True)
class Network:
    """Fitted weights as arrays. `values` number the values of each name in WORDS from 1; `edges` (n_bins,) end the bins of z.

    `slope` is the hazard per unit of z past them.
    """

    values: tuple[Mapping[str, int], ...]
    numbers: NumberScaling
    weights: tuple[Array, ...]
    edges: Array
    slope: float
    scales: Mapping[str, Scale]

    def knots(self, pairs: Sequence[Pair]) -> list[Knots]:
        """Law of durations above zero of each pair."""
        return [self._knots(pair) for pair in pairs]

    def _knots(self, pair: Pair) -> Knots:
        scale = self.scales[pair[1]]
        hazard = np.cumsum(np.maximum(np.logaddexp(0.0, self.logits(pair)), LEAST_HAZARD))
        return Knots(scale.centre + scale.sd * self.edges, hazard, self.slope / scale.sd)

    def logits(self, pair: Pair) -> Array:
        """Logits of the hazard of each bin, shape (n_bins,)."""
        tables, layers = self.weights[:EMBEDDINGS], self.weights[EMBEDDINGS:]
        vectors = [table[code] for table, code in zip(tables, coded(self.values, pair), strict=True)]
        signal = np.concatenate([*vectors, self.numbers.features(pair[0])])
        for matrix, bias in zip(layers[0:4:2], layers[1:4:2], strict=True):
            signal = np.maximum(signal @ matrix + bias, 0.0)
        return np.asarray(signal @ layers[4] + layers[5])


def coded(values: Sequence[Mapping[str, int]], pair: Pair) -> list[int]:
    """Number of each of a pair's values, 0 for those never seen."""
    return [known.get(word, 0) for known, word in zip(values, words_of(pair), strict=True)]


def exposures(z: Array, edges: Array) -> Array:
    """Share of each bin that lies below z, shape (n_rows, n_bins); the first bin is one unit of z long."""
    start = np.concatenate([edges[:1] - 1.0, edges[:-1]])
    return np.asarray(np.clip((z[:, None] - start) / (edges - start), 0.0, 1.0))


def counts(rows: Rows, edges: Array) -> tuple[Array, Array]:
    """Events and survived exposure of each row in each bin, each (n_rows, n_bins): what its likelihood is made of."""
    events = np.zeros((len(rows.z), len(edges)))
    done = np.flatnonzero(rows.event)
    place = np.minimum(np.searchsorted(edges, rows.z[done], side="left"), len(edges) - 1)
    events[done, place] = 1.0
    survived = exposures(rows.z, edges)
    survived[done, place] = 0.0
    survived = np.maximum(survived - exposures(rows.z_entry, edges), 0.0)
    weight = rows.weight[:, None]
    return events * weight, survived * weight


def _edges(z: Array) -> Array:
    """Ends of bins: quantiles of completed rows, apart from each other, and one just before the first of them."""
    found = np.append(z.min() - BEFORE, np.quantile(z, SHARES))
    return np.asarray(found[np.append(True, np.diff(found) > 1e-6)])


def _start(rng: np.random.Generator, sizes: Sequence[int], n_numbers: int, base: Array) -> list[Array]:
    """Weights to start from (He et al. 2015); the last bias says what rows say without any context."""
    widths = [min(MOST_WIDTH, 2 + int(np.sqrt(size))) for size in sizes]
    tables = [0.1 * rng.normal(size=(size + 1, width)) for size, width in zip(sizes, widths, strict=True)]
    layers = []
    for before, after in ((sum(widths) + n_numbers, HIDDEN), (HIDDEN, HIDDEN)):
        layers += [np.sqrt(2.0 / before) * rng.normal(size=(before, after)), np.zeros(after)]
    return [*tables, *layers, 0.01 * rng.normal(size=(HIDDEN, len(base))), base]


def _logits(torch: Any, weights: Sequence[Any], codes: Any, numbers: Any) -> Any:
    """What `Network.logits` says, for a batch of codes (n, n_words) and numbers (n, n_numbers), in torch."""
    tables, layers = weights[:EMBEDDINGS], weights[EMBEDDINGS:]
    signal = torch.cat([*(table[codes[:, i]] for i, table in enumerate(tables)), numbers], dim=1)
    for matrix, bias in zip(layers[0:4:2], layers[1:4:2], strict=True):
        signal = torch.relu(signal @ matrix + bias)
    return signal @ layers[4] + layers[5]


def _trained(
    torch: Any, start: list[Array], codes: Ints, numbers: Array, outcome: tuple[Array, Array], pair: Ints
) -> tuple[Array, ...]:
    """Weights after descent on the log likelihood; `codes` and `numbers` are of pairs, `outcome` and `pair` of rows."""
    rng = np.random.default_rng(SEED)
    weights = [torch.tensor(w, dtype=torch.float32, requires_grad=True) for w in start]
    events, survived, known = (torch.tensor(a, dtype=torch.float32) for a in (*outcome, numbers))
    batch = int(np.clip(len(pair) // 16, LEAST_BATCH, MOST_BATCH))
    steps = min(STEPS, EPOCHS * max(len(pair) // batch, 1))
    descent = torch.optim.AdamW(weights, lr=RATE, weight_decay=DECAY)
    slowing = torch.optim.lr_scheduler.CosineAnnealingLR(descent, steps)
    order = np.concatenate([rng.permutation(len(pair)) for _ in range(1 + steps * batch // len(pair))])
    for step in range(steps):
        drawn = order[step * batch : (step + 1) * batch]
        mine = codes[pair[drawn]]
        mine = np.where(rng.random(mine.shape) < UNKNOWN_SHARE, 0, mine)
        found = _logits(torch, weights, torch.from_numpy(mine), known[pair[drawn]])
        softplus = torch.nn.functional.softplus
        loss = (events[drawn] * softplus(-found) + survived[drawn] * softplus(found)).sum() / batch
        descent.zero_grad()
        loss.backward()
        descent.step()
        slowing.step()
    return tuple(w.detach().numpy().astype(np.float64) for w in weights)


def fit(frame: Frame, commit: int) -> Alone:
    """The model as of `commit`; BadField where torch is not installed."""
    try:
        import torch
    except ImportError as error:
        fix = "install the extra that brings torch (pip install 'phasecast[torch]'), or name another model"
        raise BadField("model", "network", fix) from error
    rows = rows_of(frame)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return alone(_network(torch, rows), frame, commit)
    finally:
        torch.set_num_threads(threads)


def _network(torch: Any, rows: Rows) -> Network:
    """The network once it has learned from rows."""
    words = np.array([words_of(pair) for pair in rows.pairs], dtype=np.str_).reshape(-1, EMBEDDINGS)
    values = tuple({v: i + 1 for v, i in numbered(words[:, k].tolist()).items()} for k in range(EMBEDDINGS))
    scaling = number_scaling(rows)
    z = rows.completed.z
    edges = _edges(z) if len(z) else np.zeros(1)
    events, survived = counts(rows, edges)
    d, n = events.sum(axis=0) + 0.5, survived.sum(axis=0) + 1.0
    start = _start(np.random.default_rng(SEED), [len(known) for known in values], 2 * len(NUMBERS), np.log(d / n))
    codes = np.array([coded(values, pair) for pair in rows.pairs], dtype=np.int64).reshape(-1, EMBEDDINGS)
    numbers = np.array([scaling.features(context) for context, _ in rows.pairs]).reshape(-1, 2 * len(NUMBERS))
    weights = _trained(torch, start, codes, numbers, (events, survived), rows.pair) if len(z) else tuple(start)
    slope = float(np.clip(tails.hill_rate(z), 0.02, 50.0))
    return Network(values, scaling, weights, edges, slope, rows.scales)
