"""Devices as NVML tells of them: fields on their own, slices, drivers that fall silent, cards that sleep."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from telemetry.nvml import FIRST_RETRY_S, LONGEST_RETRY_S, Nvml, sleeping
from telemetry.nvml_fields import FIELDS, Reading
from tests.telemetry.recorded_nvml import MIB, falling_silent, from_xml, recorded

DESKTOP = """<nvidia_smi_log><gpu id="00000000:2D:00.0"><uuid>GPU-aa</uuid>
<mig_mode><current_mig>N/A</current_mig></mig_mode>
<clocks_throttle_reasons><clocks_throttle_reason_gpu_idle>Active</clocks_throttle_reason_gpu_idle>
<clocks_throttle_reason_sw_power_cap>Not Active</clocks_throttle_reason_sw_power_cap></clocks_throttle_reasons>
<fb_memory_usage><total>2000 MiB</total><used>875 MiB</used></fb_memory_usage>
<utilization><gpu_util>0 %</gpu_util></utilization><temperature><gpu_temp>36 C</gpu_temp></temperature>
<power_readings><power_draw>N/A</power_draw></power_readings><clocks><sm_clock>1265 MHz</sm_clock></clocks>
<processes><process_info><type>G</type></process_info><process_info><type>C+G</type></process_info></processes>
</gpu></nvidia_smi_log>"""
CARD = """<gpu id="00000000:{bus}:00.0"><uuid>GPU-{name}</uuid><mig_mode><current_mig>{mig}</current_mig></mig_mode>
<mig_devices>{slices}</mig_devices><clocks_event_reasons></clocks_event_reasons>
<fb_memory_usage><total>81920 MiB</total><reserved>869 MiB</reserved><used>50 MiB</used></fb_memory_usage>
<utilization><gpu_util>{used} %</gpu_util></utilization><gpu_power_readings><power_draw>67.03 W</power_draw></gpu_power_readings>
<temperature><gpu_temp>27 C</gpu_temp></temperature><clocks><sm_clock>1275 MHz</sm_clock></clocks><processes /></gpu>"""
SLICE = """<mig_device><index>{n}</index><gpu_instance_id>{n}</gpu_instance_id><compute_instance_id>0</compute_instance_id>
<fb_memory_usage><total>19968 MiB</total><reserved>0 MiB</reserved><used>12 MiB</used></fb_memory_usage></mig_device>"""


def card(name: str, bus: str = "01", mig: str = "Disabled", slices: str = "", used: int = 40) -> str:
    return CARD.format(name=name, bus=bus, mig=mig, slices=slices, used=used)


def machine(*cards: str) -> SimpleNamespace:
    return from_xml(f"<nvidia_smi_log>{''.join(cards)}</nvidia_smi_log>")


def session(library: object, tmp_path: Path) -> Nvml:
    """A session that sees no kernel and whose clock stands still until it is set."""
    now = SimpleNamespace(s=0.0)
    made = Nvml(library, lambda: now.s, tmp_path / "no devices")
    made.now = now  # type: ignore[attr-defined]
    return made


def by_device(nvml: Nvml) -> dict[str, Reading]:
    return {one.device: one for one in nvml.read().devices}


# --- fields


def test_each_field_is_told_in_its_unit_and_a_zero_that_was_told_is_a_zero(tmp_path: Path) -> None:
    found = by_device(session(from_xml(DESKTOP), tmp_path))["GPU-aa"]
    expected = {
        "gpu_utilization": 0.0,
        "gpu_memory_total_bytes": 2000 * MIB,
        "gpu_memory_used_bytes": 875 * MIB,
        "sm_clock_hz": 1.265e9,
        "temperature_c": 36.0,
        "throttle_reasons": ["gpu_idle"],
        "corunners": 1,
    }
    assert (expected, {"power_w": "Not Supported"}) == (found.values, found.absent)


def test_one_field_that_is_refused_leaves_the_others(tmp_path: Path) -> None:
    """T22: utilisation raises, memory works."""
    library = machine(card("a"))

    def refused(_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    library.nvmlDeviceGetUtilizationRates = refused
    found = by_device(session(library, tmp_path))["GPU-a"]
    assert ("Not Supported", 50 * MIB) == (found.absent["gpu_utilization"], found.values["gpu_memory_used_bytes"])
    assert set(FIELDS) == found.values.keys() | found.absent.keys()


@pytest.mark.parametrize(
    ("call", "answer", "names"),
    [
        ("nvmlDeviceGetUtilizationRates", SimpleNamespace(gpu=2**32 - 1), {"gpu_utilization"}),
        (
            "nvmlDeviceGetMemoryInfo",
            SimpleNamespace(total=2**64 - 1, used=0),
            {"gpu_memory_total_bytes", "gpu_memory_used_bytes"},
        ),
        ("nvmlDeviceGetMemoryInfo", SimpleNamespace(total=0, used=0), {"gpu_memory_total_bytes", "gpu_memory_used_bytes"}),
    ],
)
def test_numbers_that_mean_not_available_are_no_numbers(tmp_path: Path, call: str, answer: object, names: set[str]) -> None:
    """T22."""
    library = machine(card("a"))
    setattr(library, call, lambda *_: answer)
    assert names == by_device(session(library, tmp_path))["GPU-a"].absent.keys()


def test_functions_that_an_older_driver_or_pynvml_lacks_are_fields_that_are_absent(tmp_path: Path) -> None:
    library = machine(card("a"))

    def memory(_: object, *version: object) -> SimpleNamespace:
        if version:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return SimpleNamespace(total=100, used=60)

    library.nvmlDeviceGetMemoryInfo = memory
    del library.nvmlDeviceGetPowerUsage, library.nvmlDeviceGetMigMode
    found = by_device(session(library, tmp_path))["GPU-a"]
    assert ((100, 60), {"power_w"}) == (
        (found.values["gpu_memory_total_bytes"], found.values["gpu_memory_used_bytes"]),
        found.absent.keys(),
    )


def test_slices_have_their_own_memory_and_nobody_knows_their_utilisation(tmp_path: Path) -> None:
    """T21: MIG on, a busy slice, and a driver that says 0 % of the card."""
    library = machine(card("a", mig="Enabled", slices=SLICE.format(n=0) + SLICE.format(n=3), used=0))
    found = by_device(session(library, tmp_path))
    assert ["GPU-a", "MIG-GPU-a/0/0", "MIG-GPU-a/3/0"] == list(found)
    part = found["MIG-GPU-a/3/0"]
    assert ("GPU-a", 19968 * MIB, 12 * MIB) == (
        part.parent,
        part.values["gpu_memory_total_bytes"],
        part.values["gpu_memory_used_bytes"],
    )
    for one in found.values():
        assert one.absent["gpu_utilization"].startswith("unsupported")
    assert (None, 67.03) == (found["GPU-a"].parent, found["GPU-a"].values["power_w"])


def test_a_card_that_fails_does_not_hide_the_others(tmp_path: Path) -> None:
    library = machine(card("a"), card("b", "02"))
    ask = library.nvmlDeviceGetHandleByIndex

    def handle(index: int) -> object:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return ask(index)

    library.nvmlDeviceGetHandleByIndex = handle
    nvml = session(library, tmp_path)
    readings = nvml.read()
    assert (["GPU-b"], "device 0: GPU is lost", None) == (
        [one.device for one in readings.devices],
        readings.trouble,
        nvml.lost_since_ns,
    )


def test_uuid_and_not_the_number_names_a_card(tmp_path: Path) -> None:
    """T24: the order of the cards changes."""
    one, other = card("a", "01", used=10), card("b", "02", used=90)
    for cards in ((one, other), (other, one)):
        found = by_device(session(machine(*cards), tmp_path))
        assert {"GPU-a": 0.1, "GPU-b": 0.9} == {name: reading.values["gpu_utilization"] for name, reading in found.items()}


# --- the driver


def test_a_driver_that_falls_silent_is_lost_begun_again_ever_more_rarely_and_found(tmp_path: Path) -> None:
    """T26: NVML works, then every call errors."""
    library = machine(card("a"))
    silence = falling_silent(library, pynvml.NVML_ERROR_UNKNOWN)
    begun: list[float] = []
    nvml = session(library, tmp_path)
    library.nvmlInit = lambda: begun.append(nvml.now.s)
    nvml.read()
    silence(True)
    readings = nvml.read()
    assert nvml.lost_since_ns is not None
    lost_since_ns = nvml.lost_since_ns
    why = "telemetry_lost: the number of devices: Unknown Error"
    assert (why, [Reading("GPU-a", None, {}, dict.fromkeys(FIELDS, why))]) == (readings.trouble, list(readings.devices))
    for second in range(1, 40):
        nvml.now.s = float(second)
        nvml.read()
    assert [0.0, 1.0, 3.0, 7.0, 15.0, 31.0] == begun
    silence(False)
    nvml.now.s = 31.0 + 32.0
    assert lost_since_ns == nvml.lost_since_ns
    readings = nvml.read()
    assert (None, 0.4, None) == (readings.trouble, readings.devices[0].values["gpu_utilization"], nvml.lost_since_ns)
    silence(True)
    nvml.read()
    begun.clear()
    nvml.now.s += FIRST_RETRY_S
    nvml.read()
    assert 1 == len(begun)


def test_pauses_between_attempts_to_begin_are_bounded(tmp_path: Path) -> None:
    begun: list[float] = []

    def init() -> None:
        begun.append(nvml.now.s)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    library = machine()
    library.nvmlInit = init
    nvml = session(library, tmp_path)
    for second in range(3_000):
        nvml.now.s = float(second)
        assert "NVML: Driver Not Loaded" == nvml.read().trouble
    assert LONGEST_RETRY_S == max(later - sooner for sooner, later in itertools.pairwise(begun))
    assert nvml.lost_since_ns is None


def test_a_machine_without_cards_or_without_pynvml_has_none(tmp_path: Path) -> None:
    assert ((), None) == (session(machine(), tmp_path).read().devices, session(machine(), tmp_path).read().trouble)
    assert "nvidia-ml-py is not installed" == session(None, tmp_path).read().trouble


def test_a_card_that_is_gone_is_told_as_gone(tmp_path: Path) -> None:
    library = machine(card("a"), card("b", "02"))
    nvml = session(library, tmp_path)
    nvml.read()
    library.nvmlDeviceGetCount = lambda: 1
    assert {"not listed any more"} == set(by_device(nvml)["GPU-b"].absent.values())


# --- sleep


def pci(root: Path, address: str, status: str, vendor: str = "0x10de", kind: str = "0x030200") -> None:
    (root / address / "power").mkdir(parents=True, exist_ok=True)
    for name, text in {"vendor": vendor, "class": kind, "power/runtime_status": status}.items():
        (root / address / name).write_text(f"{text}\n")


def test_the_kernel_tells_which_cards_sleep(tmp_path: Path) -> None:
    pci(tmp_path, "0000:01:00.0", "suspended")
    pci(tmp_path, "0000:01:00.1", "suspended", kind="0x040300")  # its sound
    pci(tmp_path, "0000:02:00.0", "active")
    pci(tmp_path, "0000:03:00.0", "suspended", vendor="0x8086")
    assert {"0000:01:00.0": True, "0000:02:00.0": False} == sleeping(tmp_path)
    assert {} == sleeping(tmp_path / "elsewhere")


def test_a_sleeping_card_is_left_alone_and_said_to_sleep(tmp_path: Path) -> None:
    """B10: a laptop's card asleep: not even the driver is begun."""
    pci(tmp_path, "0000:01:00.0", "suspended")
    library = machine(card("a"))

    def init() -> None:
        raise AssertionError("this wakes it")

    library.nvmlInit = init
    readings = Nvml(library, pci_devices=tmp_path).read()
    assert ((), "0000:01:00.0: asleep") == (readings.devices, readings.trouble)


def test_of_two_cards_only_the_one_awake_is_asked(tmp_path: Path) -> None:
    library = machine(card("a"), card("b", "02"))
    nvml = Nvml(library, pci_devices=tmp_path)
    pci(tmp_path, "0000:01:00.0", "active")
    pci(tmp_path, "0000:02:00.0", "active")
    assert {"GPU-a", "GPU-b"} == by_device(nvml).keys()
    pci(tmp_path, "0000:02:00.0", "suspended")
    del library.nvmlDeviceGetHandleByIndex
    found = by_device(nvml)
    assert (0.4, {"asleep"}) == (found["GPU-a"].values["gpu_utilization"], set(found["GPU-b"].absent.values()))
    pci(tmp_path, "0000:01:00.0", "suspended")
    assert {"asleep"} == set(by_device(nvml)["GPU-a"].absent.values())


# --- recorded machines, and this one


def test_a_recorded_desktop_card(shared_dir: Path, tmp_path: Path) -> None:
    """Schema 11: 89 fields N/A, power among them; ten programs draw on it and none computes."""
    library = recorded(shared_dir / "examples" / "F07-nvidia-smi-gt-1030.xml")
    [found] = session(library, tmp_path).read().devices
    expected = {
        "gpu_utilization": 0.0,
        "gpu_memory_total_bytes": 1998 * MIB,
        "gpu_memory_used_bytes": 875 * MIB,
        "sm_clock_hz": 1.265e9,
        "temperature_c": 36.0,
        "throttle_reasons": ["gpu_idle"],
        "corunners": 0,
    }
    assert ("GPU-857c6374-f681-cf3a-f99f-9063a87b8ac0", expected, {"power_w": "Not Supported"}) == (
        found.device,
        found.values,
        found.absent,
    )


def test_a_recorded_card_cut_into_four(shared_dir: Path, tmp_path: Path) -> None:
    """Schema 12: reserved memory is not used memory, and slices know their memory only."""
    library = recorded(shared_dir / "examples" / "F07-nvidia-smi-a100-mig.xml")
    whole, *slices = session(library, tmp_path).read().devices
    uuid = "GPU-513536b6-7d19-9063-b049-1e69664bb298"
    expected = {
        "gpu_memory_total_bytes": 81920 * MIB,
        "gpu_memory_used_bytes": 50 * MIB,
        "sm_clock_hz": 1.275e9,
        "temperature_c": 27.0,
        "power_w": 67.03,
        "throttle_reasons": [],
        "corunners": 0,
    }
    assert (uuid, expected, {"gpu_utilization"}) == (whole.device, whole.values, whole.absent.keys())
    assert [(uuid, 19968 * MIB)] * 4 == [(one.parent, one.values["gpu_memory_total_bytes"]) for one in slices]
    assert {"gpu_utilization", "sm_clock_hz", "temperature_c", "power_w", "throttle_reasons"} == slices[0].absent.keys()


def test_this_machine_answers_or_says_why_not() -> None:
    readings = Nvml(pynvml).read()
    if not readings.devices:
        assert readings.trouble
    for one in readings.devices:
        assert set(FIELDS) == one.values.keys() | one.absent.keys()
