"""The encoder's backends by name. Each is imported only when it is asked for: torch may not be there."""

from __future__ import annotations

from service.demo.encoder import Encoder


def backend(name: str, threads: int) -> Encoder:
    """The backend `torch` or `numpy`, computing on so many threads."""
    if name == "torch":
        from service.demo.torch_encoder import TorchEncoder

        return TorchEncoder(threads)
    from service.demo.numpy_encoder import NumpyEncoder

    return NumpyEncoder(threads)
