"""The encoder on torch, CPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from service.demo.encoder import N_HEADS, N_LAYERS, WIDTH, tensor_shapes


class TorchEncoder:
    """See `service.demo.encoder.Encoder`."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self.runtime = f"torch-{torch.__version__.split('+')[0]}"
        self._file: Any = None
        self._weights: dict[str, Any] = {}
        self._activations: Any = None

    def open(self, path: Path) -> None:
        """Map the file and read its header."""
        self._file = safe_open(path, framework="pt")

    def materialize(self) -> None:
        """Copy out of the mapping: a mapped tensor would be read only at its first use."""
        for name in tensor_shapes():
            self._weights[name] = torch.clone(self._file.get_tensor(name))
        self._file = None

    def warmup(self, batch: int, length: int) -> None:
        """One call on token 0."""
        for _ in self.layers([[0] * length] * batch):
            pass

    def layers(self, tokens: list[list[int]]) -> Iterator[int]:
        """Activations are kept, shape (batch, length, width)."""
        x = self._embedded(tokens)
        for layer in range(N_LAYERS):
            self._activations = x = self._layer(layer, x)
            yield layer

    def output(self) -> list[float]:
        """Mean over sequences and batch, shape (width,)."""
        return [float(v) for v in self._activations.mean(dim=(0, 1)).tolist()]

    def release(self) -> None:
        """Drop weights and mapping."""
        self._weights, self._activations, self._file = {}, None, None

    def _embedded(self, tokens: list[list[int]]) -> Any:
        with torch.inference_mode():
            ids = torch.tensor(tokens)
            scale = math.sqrt(self._weights["embedding"].shape[0])
            return self._weights["embedding"][ids] * scale + self._weights["position"][: ids.shape[1]]

    def _layer(self, layer: int, x: Any) -> Any:
        with torch.inference_mode():
            w = {name: self._weights[f"{layer}.{name}"] for name in ("query", "key", "value", "output", "widen", "narrow")}
            normed = layer_norm(x, (WIDTH,))
            heads = [
                (normed @ w[name]).unflatten(-1, (N_HEADS, WIDTH // N_HEADS)).transpose(1, 2)
                for name in ("query", "key", "value")
            ]
            mixed = scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
            x = x + mixed @ w["output"]
            return x + torch.relu(layer_norm(x, (WIDTH,)) @ w["widen"]) @ w["narrow"]
