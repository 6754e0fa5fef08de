"""Latency and rate of copies from their times at several sizes: t = latency + bytes / rate, by non-negative least squares.

Each size weighs by 1 / t^2, so that the small ones tell the latency and the large ones the rate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from calibrate.hosts.series import Series

_COPY = re.compile(r"copy_(?P<kind>pinned|pageable)_(?P<size>\d+)_(?P<way>host_to_device|device_to_host)")
LEAST_SIZES = 3


def fit(sizes_bytes: Sequence[float], times_s: Sequence[float]) -> tuple[float, float]:
    """Latency in s and rate in bytes/s of copies of these sizes that took so long; needs two sizes or more."""
    from scipy.optimize import nnls

    times = np.asarray(times_s, dtype=float)
    design = np.column_stack([np.ones_like(times), np.asarray(sizes_bytes, dtype=float)]) / times[:, None]
    (latency_s, s_per_byte), _ = nnls(design, np.ones_like(times))
    return float(latency_s), float(1.0 / max(s_per_byte, 1e-18))


def fitted_copies(series: Sequence[Series]) -> list[Series]:
    """A latency and a rate for each direction and kind of memory that was copied at three sizes or more."""
    found: dict[str, list[tuple[float, float]]] = {}
    for one in series:
        told = _COPY.fullmatch(one.name)
        if told is not None and one.unit == "bytes_per_s":
            size_bytes = float(told["size"])
            found.setdefault(f"copy_{told['kind']}_{told['way']}", []).append((size_bytes, size_bytes / one.median))
    made = []
    for name, points in found.items():
        if len(points) >= LEAST_SIZES:
            latency_s, bytes_per_s = fit(*zip(*points, strict=True))
            made += [Series(f"{name}_latency", "s", (latency_s,)), Series(name, "bytes_per_s", (bytes_per_s,))]
    return made
