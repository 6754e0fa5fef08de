"""The encoder on NumPy: the same file and the same numbers where torch is not installed.

Sequences are spread over threads of our own, each multiplying on one: OpenBLAS's threads spin while they wait, so that
one other busy process on the machine can slow them down tenfold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from service.demo.encoder import N_HEADS, N_LAYERS, WIDTH, tensor_shapes

Floats = NDArray[np.float32]


class NumpyEncoder:
    """See `service.demo.encoder.Encoder`."""

    def __init__(self, threads: int) -> None:
        self.runtime = f"numpy-{np.__version__}"
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)
        self._file: Any = None
        self._weights: dict[str, Floats] = {}
        self._activations: Any = None

    def open(self, path: Path) -> None:
        """Map the file and read its header."""
        self._file = safe_open(path, framework="np")

    def materialize(self) -> None:
        """Read every tensor; this framework copies them out of the mapping."""
        for name in tensor_shapes():
            self._weights[name] = self._file.get_tensor(name)
        self._file = None

    def warmup(self, batch: int, length: int) -> None:
        """One call on token 0."""
        for _ in self.layers([[0] * length] * batch):
            pass

    def layers(self, tokens: list[list[int]]) -> Iterator[int]:
        """Activations are kept, shape (batch, length, width)."""
        ids = np.array(tokens)
        scale = np.float32(math.sqrt(self._weights["embedding"].shape[0]))
        x = self._weights["embedding"][ids] * scale + self._weights["position"][: ids.shape[1]]
        parts = np.array_split(x, min(self._threads, len(x)))
        for layer in range(N_LAYERS):
            parts = list(self._pool.map(self._layer, repeat(layer), parts))
            self._activations = np.concatenate(parts)
            yield layer

    def output(self) -> list[float]:
        """Mean over sequences and batch, shape (width,)."""
        return [float(v) for v in self._activations.mean(axis=(0, 1))]

    def release(self) -> None:
        """Drop weights and mapping."""
        self._weights, self._activations, self._file = {}, None, None

    def _layer(self, layer: int, x: Floats) -> Floats:
        w = {name: self._weights[f"{layer}.{name}"] for name in ("query", "key", "value", "output", "widen", "narrow")}
        normed = _norm(x)
        query, key, value = (_heads(normed @ w[name]) for name in ("query", "key", "value"))
        scores = query @ key.swapaxes(-1, -2) / np.float32(math.sqrt(WIDTH // N_HEADS))
        mixed = (_softmax(scores) @ value).swapaxes(1, 2).reshape(x.shape)
        attended = np.asarray(x + mixed @ w["output"], dtype=np.float32)
        raised = np.maximum(_norm(attended) @ w["widen"], np.float32(0))
        return np.asarray(attended + raised @ w["narrow"], dtype=np.float32)


def _norm(x: Floats) -> Floats:
    """Zero mean and unit variance along the width (epsilon 1e-5)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(1e-5)), dtype=np.float32)


def _heads(x: Floats) -> Floats:
    """(batch, length, width) to (batch, heads, length, width / heads)."""
    return x.reshape(*x.shape[:2], N_HEADS, WIDTH // N_HEADS).swapaxes(1, 2)


def _softmax(scores: Floats) -> Floats:
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True), dtype=np.float32)
