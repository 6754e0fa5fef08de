import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from telemetry.importers.contract import Found, Options
from telemetry.importers.nvidia_smi import NVIDIA_SMI
from telemetry.tables import ResourceSample

MIB = 1 << 20
CARD = """\
<gpu id="00000000:01:00.0">
  <mig_devices>None</mig_devices>
  <uuid>GPU-1</uuid>
  <clocks_throttle_reasons>
    <clocks_throttle_reason_gpu_idle>Not Active</clocks_throttle_reason_gpu_idle>
    <clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>
  </clocks_throttle_reasons>
  <fb_memory_usage><total>8 GiB</total><used>100 MiB</used></fb_memory_usage>
  <utilization><gpu_util>35 %</gpu_util></utilization>
  <temperature><gpu_temp>36 C</gpu_temp></temperature>
  <power_readings><power_draw>67.03 W</power_draw></power_readings>
  <clocks><sm_clock>1275 MHz</sm_clock></clocks>
  <processes>
    <process_info><type>G</type><used_memory>5 MiB</used_memory></process_info>
    <process_info><type>C</type><used_memory>0 MiB</used_memory></process_info>
    <process_info><type>M+C</type><used_memory>N/A</used_memory></process_info>
  </processes>
</gpu>
"""


def log(*cards: str, at: str = "Thu Sep 23 17:44:07 2021") -> str:
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v11.dtd">\n<nvidia_smi_log>\n'
        f"<timestamp>{at}</timestamp>\n{''.join(cards)}</nvidia_smi_log>\n"
    )


def found(folder: Path, text: str, **options: str) -> Found:
    path = folder / "smi.xml"
    path.write_text(text)
    assert NVIDIA_SMI.recognises(path, text.encode())
    return NVIDIA_SMI.read(path, Options(**options))


def samples(read: Found) -> list[Any]:
    assert all(isinstance(row, ResourceSample) for row in read.rows)
    return list(read.rows)


def test_units_stand_in_the_values_and_are_turned_into_ours(tmp_path: Path) -> None:
    read = found(tmp_path, log(CARD), host="n1")
    [sample] = samples(read)
    assert ("GPU-1", None, "n1", 0.35, 8192 * MIB, 100 * MIB) == (
        *(sample.device, sample.parent_device, sample.host, sample.gpu_utilization),
        *(sample.gpu_memory_total_bytes, sample.gpu_memory_used_bytes),
    )
    assert (1.275e9, 36.0, 67.03, ["sw_power_cap"], 2) == (
        *(sample.sm_clock_hz, sample.temperature_c, sample.power_w, sample.throttle_reasons),
        sample.corunners,  # a process without memory computes too, one that draws does not
    )
    assert ("Thu Sep 23 17:44:07 2021", None, {}) == (sample.sampled_text, sample.sampled_ns, json.loads(sample.absent))
    assert (1, ()) == (read.n_read, read.refused)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("N/A", "unsupported"),
        ("[Not Supported]", "unsupported"),
        ("Unknown Error", "Unknown Error"),
        ("Requested functionality has been deprecated", "Requested functionality has been deprecated"),
        ("140 %", "140 %"),
        ("35 bananas", "35 bananas"),
        ("-1 %", "-1 %"),
    ],
)
def test_what_a_device_does_not_tell_is_null_with_its_reason(tmp_path: Path, said: str, why: str) -> None:  # T21, T22
    [sample] = samples(found(tmp_path, log(CARD.replace("35 %", said))))
    assert (None, {"gpu_utilization": why}) == (sample.gpu_utilization, json.loads(sample.absent))
    assert 67.03 == sample.power_w


def test_fields_that_are_not_there_are_null_not_zero(tmp_path: Path) -> None:
    [sample] = samples(found(tmp_path, log("<gpu><uuid>GPU-1</uuid></gpu>")))
    fields = {"gpu_utilization", "gpu_memory_total_bytes", "gpu_memory_used_bytes", "sm_clock_hz", "temperature_c", "power_w"}
    assert dict.fromkeys([*fields, "throttle_reasons", "corunners"], "not in the file") == json.loads(sample.absent)
    assert (None, None) == (sample.corunners, sample.throttle_reasons)


def test_a_slice_has_its_own_memory_and_nothing_else_of_the_card(tmp_path: Path) -> None:  # T21
    slices = """<mig_devices>
      <mig_device><index>0</index><gpu_instance_id>3</gpu_instance_id><compute_instance_id>0</compute_instance_id>
        <fb_memory_usage><total>19968 MiB</total><used>12 MiB</used></fb_memory_usage></mig_device>
      <mig_device><index>1</index><uuid>MIG-own</uuid><gpu_instance_id>4</gpu_instance_id></mig_device></mig_devices>"""
    process = "<type>C</type><gpu_instance_id>3</gpu_instance_id><compute_instance_id>0</compute_instance_id>"
    card = CARD.replace("<mig_devices>None</mig_devices>", slices).replace("<type>C</type>", process)
    read = found(tmp_path, log(card))
    assert 3 == read.n_read
    _, first, second = samples(read)
    assert ("MIG-GPU-1/3/0", "GPU-1", 19968 * MIB, 12 * MIB, 1) == (
        *(first.device, first.parent_device, first.gpu_memory_total_bytes, first.gpu_memory_used_bytes),
        first.corunners,
    )
    assert (None, None, None, None) == (first.gpu_utilization, first.power_w, first.sm_clock_hz, first.throttle_reasons)
    assert "unsupported" == json.loads(first.absent)["gpu_utilization"]
    assert ("MIG-own", "GPU-1", None, 0) == (second.device, second.parent_device, second.gpu_memory_total_bytes, second.corunners)


def test_the_zero_that_old_drivers_show_where_mig_is_on_is_unknown(tmp_path: Path) -> None:  # T21
    mode = "<mig_mode><current_mig>Enabled</current_mig></mig_mode><uuid>"
    [sample] = samples(found(tmp_path, log(CARD.replace("35 %", "0 %").replace("<uuid>", mode))))
    assert (None, {"gpu_utilization": "unsupported: not known where MIG is on"}) == (
        sample.gpu_utilization,
        json.loads(sample.absent),
    )


def test_the_zeros_of_a_virtual_gpu_are_unknown(tmp_path: Path) -> None:  # T22, T28
    virtual = "<gpu_virtualization_mode><virtualization_mode>VGPU</virtualization_mode></gpu_virtualization_mode></gpu>"
    card = CARD.replace("1275 MHz", "0 MHz").replace("36 C", "0 C").replace("35 %", "0 %").replace("</gpu>", virtual)
    [sample] = samples(found(tmp_path, log(card)))
    assert (None, None, 0.0) == (sample.sm_clock_hz, sample.temperature_c, sample.gpu_utilization)
    assert {"sm_clock_hz", "temperature_c"} == set(json.loads(sample.absent))


def test_later_schemas_name_power_and_reasons_otherwise(tmp_path: Path) -> None:
    later = (
        CARD.replace("throttle_reason", "event_reason")
        .replace(
            "<power_readings><power_draw>67.03 W</power_draw></power_readings>", "<gpu_power_readings>POWER</gpu_power_readings>"
        )
        .replace("POWER", "<average_power_draw>139.62 W</average_power_draw><instant_power_draw>142.33 W</instant_power_draw>")
    )
    module = "<module_power_readings><power_draw>900.00 W</power_draw></module_power_readings></gpu>"
    [sample] = samples(found(tmp_path, log(later.replace("</gpu>", module))))
    assert (142.33, ["sw_power_cap"]) == (sample.power_w, sample.throttle_reasons)


def test_a_card_without_a_uuid_is_refused_and_the_others_go_on(tmp_path: Path) -> None:  # T24
    text = log(CARD.replace("GPU-1", "N/A"), CARD)
    read = found(tmp_path, text)
    [refusal] = read.refused
    assert ("gpu 00000000:01:00.0", "no UUID: an index is no identity") == (refusal.item, refusal.reason)
    assert text.splitlines()[refusal.line - 1].startswith("<gpu")
    assert ["GPU-1"] == [sample.device for sample in samples(read)]


def test_documents_written_one_after_another_are_read_and_a_broken_one_is_passed_over(tmp_path: Path) -> None:
    text = log(CARD) + log(CARD).replace("</clocks>", "</clock>") + log(CARD, at="Thu Sep 23 17:44:08 2021")
    read = found(tmp_path, text)
    assert ["Thu Sep 23 17:44:07 2021", "Thu Sep 23 17:44:08 2021"] == [sample.sampled_text for sample in samples(read)]
    [refusal] = read.refused
    assert "mismatched tag" in refusal.reason
    assert "</clock>" in text.splitlines()[refusal.line - 1]


def test_samples_within_one_second_are_told_apart_the_same_way_each_time(tmp_path: Path) -> None:
    text = log(CARD) + log(CARD.replace("35 %", "36 %"))
    ids = [sample.sample_id for sample in samples(found(tmp_path, text))]
    assert 2 == len(set(ids))
    assert ids == [sample.sample_id for sample in samples(found(tmp_path, text))]
    assert ids[0] != samples(found(tmp_path, text, host="n2"))[0].sample_id


@pytest.mark.parametrize(
    "text",
    [
        log(CARD).replace('"nvsmi_device_v11.dtd">', '"x" [<!ENTITY a "aaaa">]>').replace("35 %", "&a;"),
        log("<a>" * 40 + "</a>" * 40),
        log(CARD)[:-40],
        log(),
    ],
)
def test_what_is_no_plain_document_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "smi.xml"
    path.write_text(text)
    read = NVIDIA_SMI.read(path, Options())
    assert () == read.rows
    assert 1 == len(read.refused)


def test_packed_and_utf16_files_are_read_too(tmp_path: Path) -> None:
    plain = found(tmp_path, log(CARD))
    for name, raw in (("a.xml.gz", gzip.compress(log(CARD).encode())), ("b.xml", log(CARD).encode("utf-16"))):
        (tmp_path / name).write_bytes(raw)
        assert plain.rows == NVIDIA_SMI.read(tmp_path / name, Options()).rows
    assert NVIDIA_SMI.recognises(Path("b.xml"), log(CARD).encode("utf-16"))


def test_other_xml_is_not_recognised() -> None:
    for text in ("<svg></svg>", '<?xml version="1.0"?><perfmodel/>', "nvidia_smi_log", ""):
        assert not NVIDIA_SMI.recognises(Path("x.xml"), text.encode())


def test_gt_1030_draws_unknown_power_under_a_limit(shared_dir: Path) -> None:
    read = NVIDIA_SMI.read(shared_dir / "examples/F07-nvidia-smi-gt-1030.xml", Options(host="desktop"))
    assert (1, ()) == (read.n_read, read.refused)
    [sample] = samples(read)
    assert ("GPU-857c6374-f681-cf3a-f99f-9063a87b8ac0", "desktop") == (sample.device, sample.host)
    assert (0.0, 1998 * MIB, 875 * MIB, 1.265e9, 36.0) == (
        *(sample.gpu_utilization, sample.gpu_memory_total_bytes, sample.gpu_memory_used_bytes),
        *(sample.sm_clock_hz, sample.temperature_c),
    )
    assert (None, {"power_w": "unsupported"}) == (sample.power_w, json.loads(sample.absent))
    assert (["gpu_idle"], 0) == (sample.throttle_reasons, sample.corunners)  # all ten processes only draw
    assert ("Thu Sep 23 17:44:07 2021", None) == (sample.sampled_text, sample.sampled_ns)


def test_a100_slices_are_devices_of_their_own(shared_dir: Path) -> None:
    read = NVIDIA_SMI.read(shared_dir / "examples/F07-nvidia-smi-a100-mig.xml", Options())
    assert (5, ()) == (read.n_read, read.refused)
    card, *slices = samples(read)
    uuid = "GPU-513536b6-7d19-9063-b049-1e69664bb298"
    assert (uuid, None, 81920 * MIB, 67.03, []) == (
        *(card.device, card.parent_device, card.gpu_memory_total_bytes, card.power_w),
        card.throttle_reasons,
    )
    assert {"gpu_utilization": "unsupported"} == json.loads(card.absent)
    assert [f"MIG-{uuid}/{instance}/0" for instance in (3, 4, 5, 6)] == [sample.device for sample in slices]
    assert {(uuid, 19968 * MIB, 12 * MIB, None, None)} == {
        (s.parent_device, s.gpu_memory_total_bytes, s.gpu_memory_used_bytes, s.gpu_utilization, s.power_w) for s in slices
    }
