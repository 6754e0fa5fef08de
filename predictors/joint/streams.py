"""Uniforms decided by their key alone: adding, removing or reordering what is drawn changes no other draw.

A counter hash: each id is mixed into the state by the finaliser of splitmix64, the scenario last. It is not a generator that
steps, so there is no "next" number and nothing to keep.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import Array

Keys = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S12 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(12)

REPLICATES = 8
"""Independent blocks of a lattice, the spread of whose means tells the error."""


def key_of(text: str) -> np.uint64:
    """A string id as 64 bits, the same on every machine (BLAKE2b)."""
    return np.uint64(int.from_bytes(_digest(text), "little"))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def keys_of(texts: Iterable[str]) -> Keys:
    """String ids as 64 bits each, shape (n,)."""
    known: dict[str, bytes] = {}
    return np.frombuffer(b"".join([known.get(text) or known.setdefault(text, _digest(text)) for text in texts]), dtype="<u8")


def _mix(state: Keys) -> Keys:
    """The splitmix64 finaliser: a bijection in which each input bit moves half of the output bits. Wraps by design."""
    mixed = (state ^ (state >> _S30)) * _FIRST
    mixed = (mixed ^ (mixed >> _S27)) * _SECOND
    return mixed ^ (mixed >> _S31)


def stream(seed: int, name: str, *ids: Keys) -> Keys:
    """State of a stream per row: the seed, the stream's name, then each array of ids in order; they broadcast."""
    state = np.array([seed % 2**64], dtype=np.uint64)
    for column in (np.array([key_of(name)]), *ids):
        state = _mix((state ^ _mix(column + _GOLDEN)) + _GOLDEN)
    return state


def uniforms(streams: Keys, n_scenarios: int) -> Array:
    """Draws of scenarios 0 ... n_scenarios - 1, shape (*streams.shape, n_scenarios): in (0, 1), never 0 or 1.

    The first n of a longer row are those of a shorter one. Of the 64 bits 52 are used, so that the half step that keeps draws
    off the ends is exact.
    """
    scenarios = _mix(np.arange(1, n_scenarios + 1, dtype=np.uint64) * _GOLDEN)
    bits = _mix(streams[..., None] ^ scenarios) >> _S12
    return (bits.astype(np.float64) + 0.5) * 2.0**-52


def lattice(streams: Keys, dimension: NDArray[np.intp], n_dimensions: int, n_scenarios: int) -> Array:
    """Uniforms that fill a plan's dimensions evenly, for integrals: shape (n, n_scenarios), in (0, 1).

    REPLICATES blocks of m = n_scenarios / REPLICATES points, each a Kronecker lattice {s / m, s / r, s / r^2, ...} with r the
    root of r^d = r + 1 (d dimensions; the golden ratio for two), shifted modulo 1 by a keyed uniform per row and block. Rows of
    one plan have different `dimension`s; blocks are independent, so their spread is the error.
    """
    size = n_scenarios // REPLICATES
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / max(n_dimensions, 2))
    step = np.append(1.0 / size, root ** -np.arange(1.0, n_dimensions))
    points = (np.arange(size) * step[:, None]) % 1.0
    draws = points[dimension, None, :] + uniforms(streams, REPLICATES)[:, :, None]
    draws -= np.floor(draws)  # modulo 1 to the bit, and many times faster than the remainder
    draws *= 2.0
    draws -= 1.0
    np.abs(draws, out=draws)
    np.subtract(1.0, draws, out=draws)
    return np.asarray(np.clip(draws, 2.0**-53, 1.0 - 2.0**-53, out=draws)).reshape(len(streams), n_scenarios)
