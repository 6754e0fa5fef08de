"""`nvidia-smi -q -x`: what every card and every MIG slice told, as resource samples.

Read are schemas v11 to v13, and several documents in one file as `-l` writes them. A field that says N/A, or is not there, is
null with its reason: `unsupported` is the word for what a device cannot tell. A slice is told apart from its card, has its own
memory, and nothing else of what only the whole card measures. Devices are known by UUID; a slice without one is named as the
driver names it: MIG-<UUID of the card>/<GPU instance>/<compute instance>. The time stamp has no zone, so it stays text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from telemetry.importers.cells import reason
from telemetry.importers.contract import Found, Importer, Options, Refused, row_id
from telemetry.importers.decimals import number
from telemetry.importers.nvidia_smi_xml import Element, NotXml, documents, parse
from telemetry.importers.texts import decoded, whole
from telemetry.tables import ResourceSample

_ROOT = re.compile(r"\A\s*(?:<\?xml[^>]{0,200}\?>)?\s*(?:<!DOCTYPE nvidia_smi_log\b[^>]{0,200}>)?\s*<nvidia_smi_log\b")
_QUANTITY = re.compile(r"(\S+?)\s*([A-Za-z%]+)")
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_UNITS: dict[str, dict[str, Decimal]] = {
    "gpu_utilization": {"%": Decimal("0.01")},
    "gpu_memory_total_bytes": {unit: Decimal(size) for unit, size in _BYTES.items()},
    "gpu_memory_used_bytes": {unit: Decimal(size) for unit, size in _BYTES.items()},
    "sm_clock_hz": {"Hz": Decimal(1), "MHz": Decimal(10**6), "GHz": Decimal(10**9)},
    "temperature_c": {"C": Decimal(1)},
    "power_w": {"W": Decimal(1), "mW": Decimal("0.001")},
}
_PLACES: dict[str, tuple[str, ...]] = {
    "gpu_utilization": ("utilization/gpu_util",),
    "gpu_memory_total_bytes": ("fb_memory_usage/total",),
    "gpu_memory_used_bytes": ("fb_memory_usage/used",),
    "sm_clock_hz": ("clocks/sm_clock",),
    "temperature_c": ("temperature/gpu_temp",),
    "power_w": tuple(
        f"{block}/{reading}"
        for block in ("gpu_power_readings", "power_readings")
        for reading in ("power_draw", "instant_power_draw", "average_power_draw")
    ),
}
"""Where each field stands, newest schema first; the power of the whole module is not the card's."""
_OF_SLICES = ("gpu_memory_total_bytes", "gpu_memory_used_bytes")
_UNSUPPORTED = {"n/a", "[n/a]", "not supported", "[not supported]", ""}
_REASON = re.compile(r"clocks_(?:throttle|event)_reason_")
_COMPUTING = re.compile(r"\bC\b")
_MOST_REASON = 200


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001  the name says nothing
    """Whether the root element is nvidia-smi's."""
    return _ROOT.match(decoded(head[:2000])) is not None


def read(path: Path, options: Options) -> Found:
    """A sample per card and per slice, in the order of the file."""
    text, broken = whole(path)
    refused: list[Refused] = list(broken)
    rows: list[ResourceSample] = []
    n_read = 0
    for first_line, document in documents(text):
        try:
            log = parse(document, first_line)
        except NotXml as problem:
            refused.append(Refused(problem.line, "document", str(problem)))
            continue
        at = (log.text("timestamp") or "") or None
        if not log.all("gpu"):
            refused.append(Refused(first_line, "document", "it has no gpu"))
        for card in log.all("gpu"):
            slices = [one for group in card.all("mig_devices") for one in group.all("mig_device")]
            n_read += 1 + len(slices)
            _read_card(card, slices, at, options.host, rows, refused)
    return Found(tuple(_told_apart(rows)), n_read, tuple(refused), _notes(rows, options.host))


def _read_card(
    card: Element, slices: Sequence[Element], at: str | None, host: str | None, rows: list[ResourceSample], refused: list[Refused]
) -> None:
    """Samples of a card and its slices into `rows`, or why not into `refused`."""
    uuid = card.text("uuid") or ""
    if uuid.lower() in _UNSUPPORTED:
        refused.append(Refused(card.line, f"gpu {card.attributes.get('id', '')}", "no UUID: an index is no identity"))
        refused.extend(Refused(one.line, "mig_device", "its card has no UUID") for one in slices)
        return
    for one in (card, *slices):
        try:
            rows.append(_card(card, uuid, at, host) if one is card else _slice(one, card, uuid, at, host))
        except ValidationError as error:
            refused.append(Refused(one.line, one.tag, reason(error)))


def _told_apart(rows: Sequence[ResourceSample]) -> Iterator[ResourceSample]:
    """The samples, those of one device within one second numbered: the stamps have no fraction."""
    seen: Counter[str] = Counter()
    for row in rows:
        nth = seen[row.sample_id]
        seen[row.sample_id] += 1
        yield row.model_copy(update={"sample_id": row_id("nvidia_smi", row.sample_id, nth)}) if nth else row


def _card(card: Element, uuid: str, at: str | None, host: str | None) -> ResourceSample:
    """What a card told of itself."""
    values, absent = _quantities(card, _PLACES)
    for name, why in _no_readings(card, values).items():
        del values[name]
        absent[name] = why
    return _sample(uuid, None, at, host, values | _reasons(card, absent) | _computing(card, None, absent), absent)


def _no_readings(card: Element, values: Mapping[str, Any]) -> dict[str, str]:
    """Fields whose number is none: what can't be told is shown as 0 by old drivers and by virtual GPUs."""
    found = {}
    if "gpu_utilization" in values and card.text("mig_mode/current_mig") == "Enabled":
        found["gpu_utilization"] = "unsupported: not known where MIG is on"
    if values.get("sm_clock_hz") == 0:
        found["sm_clock_hz"] = "unsupported: reads 0 Hz"
    if values.get("temperature_c") == 0 and card.text("gpu_virtualization_mode/virtualization_mode") == "VGPU":
        found["temperature_c"] = "unsupported: a virtual GPU reads 0 C"
    return found


def _slice(one: Element, card: Element, uuid: str, at: str | None, host: str | None) -> ResourceSample:
    """What a slice told of itself; a card's utilisation, clock, heat and power are not its own."""
    instance, compute = one.text("gpu_instance_id") or "", one.text("compute_instance_id") or ""
    own = one.text("uuid")
    device = own if own and own.lower() not in _UNSUPPORTED else f"MIG-{uuid}/{instance}/{compute}"
    values, absent = _quantities(one, {name: _PLACES[name] for name in _OF_SLICES})
    absent |= {name: "unsupported" for name in (*_PLACES, "throttle_reasons") if name not in _OF_SLICES}
    return _sample(device, uuid, at, host, values | _computing(card, (instance, compute), absent), absent)


def _sample(
    device: str, parent: str | None, at: str | None, host: str | None, values: Mapping[str, Any], absent: Mapping[str, str]
) -> ResourceSample:
    return ResourceSample(
        sample_id=row_id("nvidia_smi", host, at, device),
        source="nvidia_smi",
        host=host,
        device=device,
        parent_device=parent,
        sampled_text=at,
        absent=json.dumps(absent, sort_keys=True),
        **values,
    )


def _quantities(device: Element, places: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Readings in the units of the table, and why each of the others is missing."""
    values: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for name, paths in places.items():
        texts = [text.strip() for text in map(device.text, paths) if text is not None]
        spoken = [text for text in texts if text.lower() not in _UNSUPPORTED]
        if not spoken:
            absent[name] = "unsupported" if texts else "not in the file"
            continue
        found = _quantity(name, spoken[0])
        if found is None:
            absent[name] = spoken[0][:_MOST_REASON]
        else:
            values[name] = found
    return values, absent


def _quantity(name: str, text: str) -> float | int | None:
    """A number with its unit in the unit of the table; None where it is none, or lies outside what can be."""
    written = _QUANTITY.fullmatch(text)
    value = number(written.group(1)) if written else None
    factor = _UNITS[name].get(written.group(2)) if written else None
    if value is None or factor is None:
        return None
    value *= factor
    if (value < 0 and name != "temperature_c") or (name == "gpu_utilization" and value > 1) or value >= 2**63:
        return None
    return int(value) if name.endswith("_bytes") else float(value)


def _reasons(card: Element, absent: dict[str, str]) -> dict[str, list[str]]:
    """Names of the reasons that hold the clocks down; v11 calls them throttle, later ones event reasons."""
    blocks = [*card.all("clocks_event_reasons"), *card.all("clocks_throttle_reasons")]
    told = {_REASON.sub("", one.tag): one.content.strip() for block in blocks[:1] for one in block.children}
    known = [name for name, state in told.items() if state in {"Active", "Not Active"}]
    if not known:
        absent["throttle_reasons"] = "unsupported" if blocks else "not in the file"
        return {}
    return {"throttle_reasons": [name for name in known if told[name] == "Active"]}


def _computing(card: Element, within: tuple[str, str] | None, absent: dict[str, str]) -> dict[str, int]:
    """Processes that compute (types C, C+G, M+C) on the card, or on the slice with these instances; drawing does not count."""
    lists = card.all("processes")
    found = lists[0].all("process_info") if lists else []
    if not lists or (not found and lists[0].content.strip() not in {"", "None"}):
        said = lists[0].content.strip()[:_MOST_REASON] if lists else "not in the file"
        absent["corunners"] = "unsupported" if said.lower() in _UNSUPPORTED else said
        return {}
    computing = [one for one in found if _COMPUTING.search(one.text("type") or "")]
    if within is not None:
        computing = [one for one in computing if (one.text("gpu_instance_id"), one.text("compute_instance_id")) == within]
    return {"corunners": len(computing)}


def _notes(rows: Sequence[ResourceSample], host: str | None) -> tuple[str, ...]:
    notes = []
    if any(row.sampled_text for row in rows):
        notes.append("times are local ones without a zone and stay text")
    if rows and host is None:
        notes.append("the file names no host: say --host")
    if any(row.sampled_text is None for row in rows):
        notes.append("samples without a time stamp: a later file of the same device can't be told from this one")
    return tuple(notes)


NVIDIA_SMI = Importer("nvidia_smi", recognises, read)
