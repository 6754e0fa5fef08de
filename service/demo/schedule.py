"""Which attempts the demo makes, in which order: a seeded shuffle, decided before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from random import Random
from typing import TypeVar

from telemetry.errors import BadField
from telemetry.words import State

T = TypeVar("T")
LENGTHS = (16, 32, 64, 128)
BATCHES = (1, 4, 8)
SHARES = {State.COLD: 0.4, State.RESIDENT: 0.1}
"""Shares of the states asked for; the rest is cached."""
CANCELLED_SHARE, FAILED_SHARE = 0.05, 0.03
LONG_TOKENS = 256
"""Only attempts of that many tokens are cancelled: a request cannot be aimed inside a few milliseconds."""
LEAST_ATTEMPTS, LARGEST_BLOCK = 20, 20


class Cancel(StrEnum):
    """How a running attempt is stopped: it looks at a flag between layers, or its process is killed."""

    FLAG = "flag"
    KILL = "kill"


class Failure(StrEnum):
    """What is wrong with an attempt; the error itself comes out of the real work."""

    TRUNCATED_CHECKPOINT = "truncated_checkpoint"
    ID_OUT_OF_RANGE = "id_out_of_range"
    MEMORY_LIMIT = "memory_limit"


@dataclass(frozen=True)
class Planned:
    """One attempt to make.

    `state` is what will be asked of the page cache; a drop that cannot be proved turns cold into cache_unknown.
    `cancel_after_fraction` is relative to the typical service time of the shape. Attempts of one `block` run one
    after the other beside the same number of co-running processes.
    """

    index: int
    block: int
    state: State
    batch: int
    length: int
    corunners: int
    cancel: Cancel | None = None
    cancel_after_fraction: float | None = None
    failure: Failure | None = None

    @property
    def tokens(self) -> int:
        """Tokens (count) of all sequences together."""
        return self.batch * self.length


def plan(n_attempts: int, seed: int) -> tuple[Planned, ...]:
    """The whole schedule; equal arguments give an equal one.

    Shapes and states are balanced, then shuffled; half of the blocks run beside a co-runner. The first block has no
    cancellation, since nothing is known yet of how long an attempt takes. Every kind of ending is there at least once.
    """
    if n_attempts < LEAST_ATTEMPTS:
        raise BadField("attempts", n_attempts, f"ask for at least {LEAST_ATTEMPTS}, so that every kind of ending has room")
    rng = Random(seed)
    size = min(LARGEST_BLOCK, n_attempts // 10)
    n_blocks = math.ceil(n_attempts / size)
    corunners = _shuffled(rng, [block % 2 for block in range(n_blocks)])
    shapes = list(product(LENGTHS, BATCHES))
    cells = _shuffled(rng, [shapes[i % len(shapes)] for i in range(n_attempts)])
    states = _shuffled(rng, _states(n_attempts))
    plain = [
        Planned(i, i // size, state, batch, length, corunners[i // size])
        for i, (state, (length, batch)) in enumerate(zip(states, cells, strict=True))
    ]
    return tuple(_with_failures(rng, _with_cancellations(rng, plain)))


def _shuffled(rng: Random, items: list[T]) -> list[T]:
    return rng.sample(items, len(items))


def _states(n: int) -> list[State]:
    asked = [state for state, share in SHARES.items() for _ in range(round(n * share))]
    return asked + [State.CACHED] * (n - len(asked))


def _with_cancellations(rng: Random, plain: list[Planned]) -> list[Planned]:
    """Cancels two equal parts, by flag and by kill."""
    each = max(1, round(len(plain) * CANCELLED_SHARE / 2))
    planned, chosen = list(plain), _choose(rng, plain, 2 * each, lambda p: p.block > 0 and p.tokens >= LONG_TOKENS)
    for i, how in zip(chosen, [Cancel.FLAG, Cancel.KILL] * each, strict=True):
        planned[i] = replace(planned[i], cancel=how, cancel_after_fraction=round(rng.uniform(0.15, 0.7), 3))
    return planned


def _with_failures(rng: Random, planned: list[Planned]) -> list[Planned]:
    """Gives each kind of failure its part; what is resident is not loaded, so its load cannot fail."""
    each = max(1, round(len(planned) * FAILED_SHARE / len(Failure)))
    chosen = _choose(rng, planned, each * len(Failure), lambda p: p.cancel is None and p.state != State.RESIDENT)
    spoiled = list(planned)
    for i, failure in zip(chosen, list(Failure) * each, strict=True):
        spoiled[i] = replace(spoiled[i], failure=failure)
    return spoiled


def _choose(rng: Random, planned: list[Planned], n: int, eligible: Callable[[Planned], bool]) -> list[int]:
    return rng.sample([p.index for p in planned if eligible(p)], n)
