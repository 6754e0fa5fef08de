"""The demo's model: a transformer encoder of 55 MB, its checkpoint, and what a backend must do.

Layer on x of shape (batch, length, width), six heads, weights without bias, norm without gain:
x += softmax(q k' / sqrt(64)) v W_output;  x += relu(norm(x) W_widen) W_narrow.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
from safetensors.numpy import save

N_LAYERS, N_HEADS, WIDTH, INNER, VOCABULARY, LONGEST = 6, 6, 384, 1536, 8192, 128
SEED = 20
FAMILY = "encoder"
MODEL = f"encoder-{N_LAYERS}x{WIDTH}@seed{SEED}"


def tensor_shapes() -> dict[str, tuple[int, int]]:
    """Every tensor of the checkpoint with its shape; float32, 55.2 MB together."""
    shapes = {"embedding": (VOCABULARY, WIDTH), "position": (LONGEST, WIDTH)}
    for layer in range(N_LAYERS):
        shapes |= {f"{layer}.{name}": (WIDTH, WIDTH) for name in ("query", "key", "value", "output")}
        shapes |= {f"{layer}.widen": (WIDTH, INNER), f"{layer}.narrow": (INNER, WIDTH)}
    return shapes


class Encoder(Protocol):
    """One backend holding at most one loaded model."""

    runtime: str
    """Name with version, such as torch-2.13.0."""

    def open(self, path: Path) -> None:
        """Open the checkpoint and read its header."""

    def materialize(self) -> None:
        """Copy every tensor into memory of our own, so that all bytes of the file have been touched."""

    def warmup(self, batch: int, length: int) -> None:
        """One call of that shape, whose first-time costs are then paid."""

    def layers(self, tokens: list[list[int]]) -> Iterator[int]:
        """Run the model over equally long sequences of ids, yielding the number of each layer when it is done."""

    def output(self) -> list[float]:
        """Mean of the last layer over positions and sequences: the attempt's output, `WIDTH` numbers."""

    def release(self) -> None:
        """Give up weights and mappings; a mapping that lived on would keep the file in the page cache."""


def best_backend(allow_torch: bool = True) -> str:
    """`torch` where it is wanted and installed, else `numpy`. Does not import torch."""
    return "torch" if allow_torch and importlib.util.find_spec("torch") is not None else "numpy"


def checkpoint(folder: Path) -> Path:
    """The checkpoint within `folder`, written there if it is not yet what the seed gives."""
    path, mark = folder / "encoder.safetensors", folder / "encoder.sha256"
    if path.exists() and mark.exists() and mark.read_text() == _digest(path.read_bytes()):
        return path
    rng = np.random.default_rng(SEED)
    tensors = {
        name: (rng.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[0])))
        for name, shape in tensor_shapes().items()
    }
    content = save(tensors)
    _write_synced(path, content)
    mark.write_text(_digest(content))
    return path


def truncated_checkpoint(path: Path) -> Path:
    """A copy of the checkpoint that ends after 60 % of its bytes, as after an interrupted download."""
    target = path.with_name("encoder-truncated.safetensors")
    whole = path.read_bytes()
    _write_synced(target, whole[: len(whole) * 6 // 10])
    return target


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write_synced(path: Path, content: bytes) -> None:
    """Dirty pages cannot be dropped from the page cache, so the file is synced at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_suffix(".part")
    with made.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
