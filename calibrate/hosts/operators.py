"""Operators whose speed is measured on processors: on torch where it is installed, else in NumPy, and it says which.

dense        product of two n x n float32 matrices, 2 n^3 operations
memory_bound a = b + s c over vectors far larger than any cache (the STREAM triad): two vectors read, one written
image_like   3 x 3 convolution of one image, 2 h w c_in c_out 9 operations
decode_like  one vector times an n x n float32 matrix far larger than any cache, as each token of a decoder does: bytes read
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

IMAGE_SIDE, CHANNELS = 96, 16
VECTOR_BYTES = 64 << 20
BLOCK = 1 << 14
"""Elements of a vector that NumPy works on at a time: both of its passes then meet memory once."""
SCALE = 3.0


@dataclass(frozen=True)
class Operator:
    """One operator at one shape: `work` units (`unit`, such as flop_per_s) are done by each call of `once`."""

    once: Callable[[], None]
    work: float
    unit: str


def backend() -> str:
    """Name of the one that operators are built on: torch or numpy."""
    return "torch" if importlib.util.find_spec("torch") is not None else "numpy"


def build(name: str, kind: str, *, threads: int, shrink: int = 1) -> Operator:
    """The operator `name` on backend `kind`; `shrink` divides its side, which makes another shape of it."""
    if kind == "torch":
        import torch

        torch.set_num_threads(threads)
        return _TORCH[name](torch, shrink)
    return _NUMPY[name](shrink)


def version(kind: str) -> str:
    """Name and version of a backend."""
    if kind == "torch":
        import torch

        return f"torch {torch.__version__}"
    return f"numpy {np.__version__}"


def _random(*shape: int) -> np.typing.NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _numpy_dense(shrink: int) -> Operator:
    side = 512 // shrink
    left, right = _random(side, side), _random(side, side)
    out = np.empty_like(left)
    return Operator(lambda: _drop(np.matmul(left, right, out=out)), 2.0 * side**3, "flop_per_s")


def _numpy_triad(shrink: int) -> Operator:
    n = VECTOR_BYTES // 4 // shrink
    added, scaled, out = (np.ones(n, np.float32) for _ in range(3))

    def once() -> None:
        for at in range(0, n, BLOCK):
            part = out[at : at + BLOCK]
            np.multiply(scaled[at : at + BLOCK], SCALE, out=part)
            np.add(part, added[at : at + BLOCK], out=part)

    return Operator(once, 12.0 * n, "bytes_per_s")


def _numpy_image(shrink: int) -> Operator:
    side = IMAGE_SIDE // shrink
    image, kernel = _random(side + 2, side + 2, CHANNELS), _random(3, 3, CHANNELS, CHANNELS)

    def once() -> None:
        out = np.zeros((side, side, CHANNELS), np.float32)
        for i in range(3):
            for j in range(3):
                out += image[i : i + side, j : j + side] @ kernel[i, j]

    return Operator(once, 18.0 * (side * CHANNELS) ** 2, "flop_per_s")


def _numpy_decode(shrink: int) -> Operator:
    side = 4096 // shrink
    weights, vector = _random(side, side), _random(side)
    out = np.empty_like(vector)
    return Operator(lambda: _drop(np.matmul(weights, vector, out=out)), 4.0 * side**2, "bytes_per_s")


def _torch_dense(torch: Any, shrink: int) -> Operator:
    side = 512 // shrink
    left, right = torch.from_numpy(_random(side, side)), torch.from_numpy(_random(side, side))
    out = torch.empty_like(left)
    return Operator(lambda: _drop(torch.matmul(left, right, out=out)), 2.0 * side**3, "flop_per_s")


def _torch_triad(torch: Any, shrink: int) -> Operator:
    n = VECTOR_BYTES // 4 // shrink
    added, scaled, out = (torch.ones(n) for _ in range(3))
    return Operator(lambda: _drop(torch.add(added, scaled, alpha=SCALE, out=out)), 12.0 * n, "bytes_per_s")


def _torch_image(torch: Any, shrink: int) -> Operator:
    side = IMAGE_SIDE // shrink
    image = torch.from_numpy(_random(1, CHANNELS, side, side))
    kernel = torch.from_numpy(_random(CHANNELS, CHANNELS, 3, 3))
    once = torch.nn.functional.conv2d
    return Operator(lambda: _drop(once(image, kernel, padding=1)), 18.0 * (side * CHANNELS) ** 2, "flop_per_s")


def _torch_decode(torch: Any, shrink: int) -> Operator:
    side = 4096 // shrink
    weights, vector = torch.from_numpy(_random(side, side)), torch.from_numpy(_random(side))
    out = torch.empty_like(vector)
    return Operator(lambda: _drop(torch.mv(weights, vector, out=out)), 4.0 * side**2, "bytes_per_s")


def _drop(_result: object) -> None:
    """Operators are timed for what they do, not for what they return."""


_NUMPY: dict[str, Callable[[int], Operator]] = {
    "matmul": _numpy_dense,
    "memory_bound": _numpy_triad,
    "image_like": _numpy_image,
    "decode_like": _numpy_decode,
}
_TORCH: dict[str, Callable[[Any, int], Operator]] = {
    "matmul": _torch_dense,
    "memory_bound": _torch_triad,
    "image_like": _torch_image,
    "decode_like": _torch_decode,
}
