"""Decoding of a checkpoint: a safetensors file opened, every tensor brought into private memory, to its last byte.

The clock stops only when all bytes were copied: a map of the file alone would look instant. Cold and cached as in `storage`.
`python -m calibrate.hosts.probes.checkpoint SECONDS cold|cached FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from calibrate.hosts.pagecache import evict, fill
from calibrate.hosts.probes.storage import told_rates
from calibrate.hosts.scratch import scratch_file
from calibrate.hosts.series import tell_done, telling

N_TENSORS, SIDE = 16, 1024


def main() -> None:
    """Measure, telling each sample."""
    budget_s, state, folder = float(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    rng = np.random.default_rng(0)
    tensors = {f"layer.{n}": rng.standard_normal((SIDE, SIDE), dtype=np.float32) for n in range(N_TENSORS)}
    held = {name: np.zeros_like(tensor) for name, tensor in tensors.items()}

    def decode(path: Path) -> None:
        with safe_open(str(path), framework="np") as file:
            for name, target in held.items():
                np.copyto(target, file.get_tensor(name))

    with scratch_file(folder, save(tensors)) as path:
        del tensors
        prepare = evict if state == "cold" else fill
        if not told_rates(path, decode, prepare, budget_s, telling(f"checkpoint_decode_{state}", "bytes_per_s")):
            unknown = telling("checkpoint_decode_cache_unknown", "bytes_per_s")
            told_rates(path, decode, lambda _: True, budget_s / 2, unknown)
    tell_done()


if __name__ == "__main__":
    main()
