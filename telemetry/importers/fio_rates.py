"""Rates and latencies of one direction of a fio job, in SI units, each with what speaks against it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from telemetry.importers.decimals import in_seconds, number

_LATENCIES = ("slat", "clat", "lat")
_KIB = 1024
_NOTICEABLE_S = 1e-9
_NOTICEABLE_SHARE = 1e-3
_FAR_OFF = 300
"""Work in flight by Little's law this many times off from what was asked for means that a unit is wrong, which makes 1000."""


def rates_of(direction: str, section: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Rates by name with unit, in the form of the other probes: median, spread (share of it), samples, complaints.

    Empty where nothing was done in this direction. `statistic` says what stands in `median` where fio gives no median.
    """
    done = _number(section, "total_ios")
    bandwidth, requests = _bandwidth(section), _number(section, "iops")
    if not done or not bandwidth or not requests:
        return {}
    found = {
        f"fio_{direction}_bytes_per_s": _rate(bandwidth, section, "bw_mean", "bw_dev", "bw_samples"),
        f"fio_{direction}_requests_per_s": _rate(requests, section, "iops_mean", "iops_stddev", "iops_samples"),
    }
    latencies = {kind: entry for kind in _LATENCIES if (entry := _latency(section, kind, int(done))) is not None}
    _compare(latencies, float(requests), told)
    return found | {f"fio_{direction}_{kind}_s": entry for kind, entry in latencies.items()}


def _number(section: Mapping[str, Any], key: str) -> Decimal | None:
    """A number of the section that is at least 0."""
    value = section.get(key)
    found = number(str(value)) if isinstance(value, int | Decimal) and not isinstance(value, bool) else None
    return found if found is not None and found >= 0 else None


def _bandwidth(section: Mapping[str, Any]) -> Decimal | None:
    """Bytes/s: `bw_bytes` of newer versions, else `bw` in KiB/s."""
    exact, kib = _number(section, "bw_bytes"), _number(section, "bw")
    return exact if exact is not None or kib is None else kib * _KIB


def _rate(value: Decimal, section: Mapping[str, Any], mean_key: str, deviation_key: str, samples_key: str) -> dict[str, Any]:
    """A rate over the whole run, with the spread among the samples taken meanwhile."""
    mean, deviation = _number(section, mean_key), _number(section, deviation_key)
    samples = int(_number(section, samples_key) or 0)
    spread = float(deviation / mean) if mean and deviation is not None and samples > 1 else 0.0
    complaints = [] if samples > 1 else ["one run without samples of its course: the spread is not known"]
    return {
        "median": float(value),
        "statistic": "mean over the run",
        "spread": spread,
        "samples": max(samples, 1),
        "run_s": in_seconds(_number(section, "runtime") or Decimal(0), "ms"),
        "complaints": complaints,
    }


def _latency(section: Mapping[str, Any], kind: str, done: int) -> dict[str, Any] | None:
    """One latency in s: its median where there are percentiles, else its mean; None where it was not taken."""
    unit = "ns" if f"{kind}_ns" in section else "us"
    block = section.get(f"{kind}_ns" if unit == "ns" else kind)
    if not isinstance(block, dict):
        return None
    mean, deviation, most = (_number(block, part) for part in ("mean", "stddev", "max"))
    if not mean or not most:
        return None
    given = block.get("percentile")
    percentiles = _percentiles(given, unit) if isinstance(given, dict) else {}
    middle = percentiles.get("50") or in_seconds(mean, unit)
    return {
        "median": middle,
        "statistic": "median" if percentiles.get("50") else "mean",
        "mean_s": in_seconds(mean, unit),
        "spread": in_seconds(deviation, unit) / middle if deviation is not None else 0.0,
        "samples": int(_number(block, "N") or done),
        "percentiles_s": percentiles,
        "complaints": [],
    }


def _percentiles(given: Mapping[str, Any], unit: str) -> dict[str, float]:
    """Quantiles in s by percent, such as "99.9"; a slot of percent 0 was not used."""
    levels = {level: number(level) for level in given}
    return {
        f"{level.normalize():f}": in_seconds(value, unit)
        for text, level in levels.items()
        if level and (value := _number(given, text)) is not None
    }


def _compare(latencies: Mapping[str, dict[str, Any]], requests_per_s: float, told: Mapping[str, Any]) -> None:
    """Complain where means of the parts do not add up, or where the work in flight betrays a wrong unit."""
    whole = latencies.get("lat")
    if whole is None:
        return
    parts = [latencies[kind]["mean_s"] for kind in ("slat", "clat") if kind in latencies]
    missing_s = whole["mean_s"] - sum(parts)
    if len(parts) == 2 and abs(missing_s) > max(_NOTICEABLE_S, _NOTICEABLE_SHARE * whole["mean_s"]):
        sense = "less" if missing_s > 0 else "more"
        whole["complaints"].append(f"mean slat + mean clat is {abs(missing_s) * 1e6:.3g} us {sense} than mean lat")
    asked = [number(str(told.get(key, "1"))) or Decimal(1) for key in ("iodepth", "numjobs")]
    in_flight = requests_per_s * whole["mean_s"] / float(asked[0] * asked[1])
    if not 1 / _FAR_OFF < in_flight < _FAR_OFF:
        whole["complaints"].append(f"{in_flight:.3g} of the requests asked for in flight: idle by a limit, or off by 1000")
