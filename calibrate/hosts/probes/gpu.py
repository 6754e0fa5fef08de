"""One CUDA device: operators by shape and batch, and copies between host and device, on the device's own events.

The context, allocations and first calls lie outside what is timed; the first call of a shape is told apart. Copies are of pinned
and of pageable memory, both ways, from 4 KiB to 64 MiB; latency and rate are fitted from them where they are read (`profile`).
`python -m calibrate.hosts.probes.gpu SECONDS operators|copies`; the device is the only one that CUDA_VISIBLE_DEVICES shows.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from calibrate.hosts.loops import timed
from calibrate.hosts.series import Tell, tell_absent, tell_done, tell_facts, telling

COPY_BYTES = tuple(4 << k for k in range(10, 25, 2))
DENSE_SIDES, BATCHES = (512, 2048), (1, 8)
DECODE_SIDE, IMAGE_SIDE, CHANNELS = 4096, 128, 64
N_SAMPLES, LOOPS = 9, 5


def main() -> None:
    """Measure, telling each sample."""
    budget_s, what = float(sys.argv[1]), sys.argv[2]
    torch = _torch()
    if torch is not None:
        began_s = time.perf_counter()
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        context_s = time.perf_counter() - began_s
        telling("gpu_context", "s")("sample", context_s, context_s, 1)
        tell_facts(backend=f"torch {torch.__version__}", cuda=torch.version.cuda, device_name=torch.cuda.get_device_name(0))
        measured = list(_copies(torch) if what == "copies" else _operators(torch))
        ends_s = time.monotonic() + budget_s
        for name, unit, work, once in measured:
            _told(torch, once, work, name, unit)
            if time.monotonic() > ends_s:
                break
    tell_done()


def _torch() -> Any:
    """torch, if it can reach a device; else None, and why is told."""
    if importlib.util.find_spec("torch") is None:
        tell_absent("gpu", "torch is not installed")
        return None
    import torch

    if not torch.cuda.is_available():
        tell_absent("gpu", f"torch {torch.__version__} reaches no CUDA device")
        return None
    return torch


Once = Callable[[], object]


def _operators(torch: Any) -> Iterator[tuple[str, str, float, Once]]:
    """Name, unit, work and call of each operator and shape."""
    for side in DENSE_SIDES:
        for batch in BATCHES:
            left, right = (torch.randn(batch, side, side, device="cuda", dtype=torch.float16) for _ in range(2))
            name = f"gpu_matmul_{side}_batch_{batch}"
            yield name, "flop_per_s", 2.0 * batch * side**3, partial(torch.matmul, left, right)
    weights = torch.randn(DECODE_SIDE, DECODE_SIDE, device="cuda", dtype=torch.float16)
    for batch in BATCHES:
        tokens = torch.randn(DECODE_SIDE, batch, device="cuda", dtype=torch.float16)
        yield f"gpu_decode_batch_{batch}", "bytes_per_s", 2.0 * DECODE_SIDE**2, partial(torch.matmul, weights, tokens)
        image = torch.randn(batch, CHANNELS, IMAGE_SIDE, IMAGE_SIDE, device="cuda", dtype=torch.float16)
        kernel = torch.randn(CHANNELS, CHANNELS, 3, 3, device="cuda", dtype=torch.float16)
        work = 18.0 * batch * (CHANNELS * IMAGE_SIDE) ** 2
        yield f"gpu_image_batch_{batch}", "flop_per_s", work, partial(torch.nn.functional.conv2d, image, kernel, padding=1)


def _copies(torch: Any) -> Iterator[tuple[str, str, float, Once]]:
    """Name, unit, bytes and call of each copy; what is copied was allocated before."""
    for size_bytes in COPY_BYTES:
        on_device = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
        for kind in ("pinned", "pageable"):
            on_host = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=kind == "pinned")
            name = f"copy_{kind}_{size_bytes}"
            yield f"{name}_host_to_device", "bytes_per_s", float(size_bytes), partial(on_device.copy_, on_host, non_blocking=True)
            yield f"{name}_device_to_host", "bytes_per_s", float(size_bytes), partial(on_host.copy_, on_device, non_blocking=True)


def _told(torch: Any, once: Once, work: float, name: str, unit: str) -> None:
    """Tell the first call on the host's clock, then samples of several calls between two events of the device."""
    began_s = time.perf_counter()
    once()
    torch.cuda.synchronize()
    first_s = time.perf_counter() - began_s
    telling(f"{name}_first", "s")("sample", first_s, first_s, 1)
    tell: Tell = telling(name, unit)
    for n in range(N_SAMPLES + 1):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def batch(began: Any = began, ended: Any = ended) -> None:
            began.record()
            for _ in range(LOOPS):
                once()
            ended.record()
            ended.synchronize()

        took_s = timed(batch, 1)
        tell("sample" if n else "warmup", LOOPS * work / (began.elapsed_time(ended) / 1e3), took_s, LOOPS)


if __name__ == "__main__":
    main()
