import gzip
from pathlib import Path

import pytest

from telemetry.errors import BadField
from telemetry.importers.contract import Found, Options
from telemetry.importers.starpu import STARPU
from telemetry.tables import Attempt, Observation
from telemetry.words import Ended

RULE = "####################"


def table(device: str, entries: list[str], columns: str = "mean (us)\tdev (us)", promised: int | None = None) -> str:
    return f"""#####
# Model for {device}_impl0 (Comb0)
# number of entries
{len(entries) if promised is None else promised}
# sumlnx\tsumlnx2\t\tsumlny\t\tsumlnxlny\talpha\t\tbeta\t\tn\tminx\t\tmaxx
0.0\t0.0\t0.0\t0.0\tnan\tnan\t0\t0\t0
# a\t\tb\t\tc
nan\tnan\tnan
# not multiple-regression-base
0
# hash\t\tsize\t\tflops\t\t{columns}\tsum\t\tsum2\t\tn
{"".join(line + chr(10) for line in entries)}
"""


def combination(kind: int, number: int, body: str, cores: int = 1) -> str:
    return f"""{RULE}
# COMB_{number}
# number of types devices
1
{RULE}
# DEV_0
# device type (CPU - 0, CUDA - 1, HIP - 7)
{kind}
{RULE}
# DEV_0
# device id \n{number}
{RULE}
# DEV_0
# number of cores \n{cores}
##########
# number of implementations
1
{body}"""


def model(*combinations: str, version: int = 45) -> str:
    head = f"##################\n# Performance Model Version\n{version}\n\n{RULE}\n# COMBs\n# number of combinations\n"
    return f"{head}{len(combinations)}\n{''.join(combinations)}"


def found(folder: Path, text: str, name: str = "gemm.node1", **options: str) -> Found:
    path = folder / name
    path.write_text(text)
    assert STARPU.recognises(path, text.encode())
    return STARPU.read(path, Options(**options))


def pairs(read: Found) -> list[tuple[Attempt, Observation]]:
    attempts = {row.attempt_id: row for row in read.rows if isinstance(row, Attempt)}
    return [(attempts[row.attempt_id], row) for row in read.rows if isinstance(row, Observation)]


def test_an_entry_becomes_a_mean_with_its_count_and_the_spread_of_its_sums(tmp_path: Path) -> None:
    # Four runs of 1, 1, 3 and 3 us: mean 2, sum2 = 20, spread sqrt(20 / 4 - 4) = 1.
    text = model(combination(1, 0, table("cuda0", ["deadbeef\t1024\t0.0\t2.0\t1.0\t8.0\t20.0\t4"])))
    read = found(tmp_path, text)
    assert (1, (), ()) == (read.n_read, read.refused, read.notes)
    [(attempt, observation)] = pairs(read)
    assert ("node1", "cuda0", "gemm", "impl0", 1024.0) == (
        *(attempt.host, attempt.device, attempt.family, attempt.mode),
        attempt.size_in,
    )
    assert ("service", 2e-6, 1e-6, 4, Ended.COMPLETED) == (
        *(observation.phase, observation.duration_s, observation.spread_s, observation.outcomes),
        observation.ended,
    )
    assert (None, None, None) == (observation.assumed, observation.clock, observation.started_ns)


def test_reading_again_or_packed_gives_the_same_rows(tmp_path: Path) -> None:
    text = model(combination(0, 0, table("cpu0", ["0a\t16\t0\t2\t1\t8\t20\t4"])))
    first = found(tmp_path, text)
    packed = tmp_path / "gemm.node1.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert first == STARPU.read(packed, Options()) == found(tmp_path, text)


def test_a_longer_history_replaces_the_shorter_one(tmp_path: Path) -> None:
    short = found(tmp_path, model(combination(0, 0, table("cpu0", ["0a\t16\t0\t2\t1\t8\t20\t4"]))))
    longer = found(tmp_path, model(combination(0, 0, table("cpu0", ["0a\t16\t0\t2\t1\t16\t40\t8"]))))
    assert pairs(short)[0][1].observation_id == pairs(longer)[0][1].observation_id
    assert 8 == pairs(longer)[0][1].outcomes


def test_copied_figures_count_once_and_different_ones_for_one_device_are_refused(tmp_path: Path) -> None:
    same, other = "0a\t16\t0\t2\t1\t8\t20\t4", "0a\t16\t0\t3\t0\t12\t36\t4"
    bodies = [combination(1, 3, table("cuda3", [same])), combination(1, 2, table("cuda2", [same]))]
    read = found(tmp_path, model(*bodies, combination(1, 2, table("cuda2", [other]))))
    assert ["cuda2"] == [attempt.device for attempt, _ in pairs(read)]
    assert "cuda3 impl0 0a (size 16) has the figures of cuda2 impl0 0a (size 16): copied, counted once" in read.notes
    [refusal] = read.refused
    assert "with other figures" in refusal.reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0a\t16\t0\tnan\t0\t8\t20\t4", "must be numbers"),
        ("0a\t16\t0\t-2\t0\t8\t20\t4", "at least 0"),
        ("0a\t16\t0\t5\t0\t8\t20\t4", "mean 5 is not sum / n = 2"),
        ("0a\t16\t0\t2\t1\t8\t20\t4.5", "no count"),
        ("0a\t16", "2 fields"),
        ("0a\t16\t0\t1e99\t0\t4e99\t4e198\t4", "292 years"),
    ],
)
def test_a_bad_entry_is_refused_with_its_line_and_the_rest_goes_on(tmp_path: Path, line: str, reason: str) -> None:
    text = model(combination(0, 0, table("cpu0", [line, "0b\t32\t0\t2\t1\t8\t20\t4"])))
    read = found(tmp_path, text)
    [refusal] = read.refused
    assert text.splitlines()[refusal.line - 1] == line
    assert reason in refusal.reason
    assert [32.0] == [attempt.size_in for attempt, _ in pairs(read)]
    assert 2 == read.n_read


def test_nothing_measured_is_no_observation_and_one_run_has_no_spread(tmp_path: Path) -> None:  # P09
    lines = ["0a\t16\t0\tnan\tnan\t0\t0\t0", "0b\t32\t0\t2\t0\t2\t4\t1"]
    read = found(tmp_path, model(combination(0, 0, table("cpu0", lines))))
    [(_, observation)] = pairs(read)
    assert (1, None) == (observation.outcomes, observation.spread_s)
    assert ("never measured (n = 0), no observation: cpu0 impl0 0a (size 16)",) == read.notes


def test_a_spread_below_the_printed_digits_is_that_of_dev_or_unknown(tmp_path: Path) -> None:
    # 1e3 +- 0.01: sum2 / n = 1e6 to seven digits, so the sums alone can't tell 0.01 from 0.
    told = "0a\t16\t0\t1.000000e+03\t1.000000e-02\t4.000000e+03\t4.000000e+06\t4"
    untold = "0b\t16\t0\t1.000000e+03\tnan\t4.000000e+03\t4.000000e+06\t4"
    wrong = "0c\t16\t0\t1.000000e+03\t5.000000e+02\t4.000000e+03\t4.000000e+06\t4"
    read = found(tmp_path, model(combination(0, 0, table("cpu0", [told, untold, wrong]))))
    assert [1e-8, None, None] == [observation.spread_s for _, observation in pairs(read)]
    assert ("cpu0 impl0 0c (size 16): dev 500.0000 contradicts sum, sum2 and n, which give none; left unknown",) == read.notes


def test_an_equal_device_that_is_far_slower_is_reported(tmp_path: Path) -> None:  # P08
    fast, slow = "0a\t16\t0\t190\t0\t1900\t361000\t10", "0a\t16\t0\t80000\t0\t240000\t1.92e10\t3"
    lines = [fast.replace("190\t", f"19{i}\t").replace("1900\t361000", f"19{i}0\t{10 * (190 + i) ** 2}") for i in range(6)]
    bodies = [combination(1, i, table(f"cuda{i}", [line])) for i, line in enumerate([*lines, slow])]
    read = found(tmp_path, model(*bodies))
    assert 7 == len(pairs(read))
    assert ("cuda6 impl0 0a (size 16): mean 80000 (n = 3), its siblings' median is 193",) == read.notes


def test_old_versions_and_combined_workers_are_read(tmp_path: Path) -> None:
    entries = "# hash\t\tsize\t\tflops\t\tmean (us)\tdev (us)\t\tsum\t\tsum2\t\tn\n0a\t16\tnan\t2\t1\t8\t20\t4\n"
    device = "# CUDA_1\n# number of workers on device CUDA_1\n1\n# Model for cuda_1_impl_0\n"
    old = f"#\n# Performance Model Version\n42\n\n{device}{entries}"
    assert ["cuda1"] == [attempt.device for attempt, _ in pairs(found(tmp_path, old))]
    without_flops = table("cpu0", ["0a\t16\t2\t1\t8\t20\t4"]).replace("\t\tflops", "")
    [(attempt, observation)] = pairs(found(tmp_path, model(combination(0, 0, without_flops, cores=4), version=44)))
    assert ("cpu0_cores4", 2e-6) == (attempt.device, observation.duration_s)


def test_a_file_that_is_cut_off_says_so_and_keeps_the_rest(tmp_path: Path) -> None:
    entry = "0a\t16\t0\t2\t1\t8\t20\t4"
    text = model(
        combination(0, 0, table("cpu0", [entry], promised=2)), combination(1, 1, table("cuda1", [entry.replace("8", "8.0")]))
    )
    read = found(tmp_path, text)
    assert ["ends 1 entries short of those promised"] == [refusal.reason for refusal in read.refused]
    assert 2 == len(pairs(read))
    cut = found(tmp_path, text[: text.rindex("0a")])
    assert ["table", "end of file"] == [refusal.item for refusal in cut.refused]


def test_an_undecidable_unit_is_assumed_and_the_user_decides(tmp_path: Path) -> None:  # T13
    text = model(combination(0, 0, table("cpu0", ["0a\t16\t0\t2\t1\t8\t20\t4"], columns="mean (us or J)\tdev (us or J)")))
    assert [(2e-6, "unit=us")] == [(row.duration_s, row.assumed) for _, row in pairs(found(tmp_path, text))]
    assert [(2e-3, None)] == [(row.duration_s, row.assumed) for _, row in pairs(found(tmp_path, text, unit="ms"))]
    assert () == found(tmp_path, text, unit="J").rows
    assert () == found(tmp_path, text, name="gemm_energy.node1").rows
    with pytest.raises(BadField, match="--unit"):
        found(tmp_path, text, unit="furlong")


def test_a_unit_that_makes_a_device_impossibly_fast_is_flagged(tmp_path: Path) -> None:  # T13
    text = model(combination(1, 0, table("cuda0", ["0a\t16\t1e12\t2\t1\t8\t20\t4"])))
    assert any("unit larger by 1000" in note for note in found(tmp_path, text).notes)
    assert not any("unit larger" in note for note in found(tmp_path, text, unit="s").notes)


def test_thirty_days_survive_exactly(tmp_path: Path) -> None:  # T14
    line = "0a\t16\t0\t2592000000001\t0\t2592000000001\t6.718464e24\t1"
    [(_, observation)] = pairs(found(tmp_path, model(combination(0, 0, table("cpu0", [line])))))
    assert 2592000.000001 == observation.duration_s


def test_other_text_is_not_recognised() -> None:
    for text in ("# TYPE a counter\na 1\n", "performance model version", "", "####\n# COMBs\n"):
        assert not STARPU.recognises(Path("gemm.node1"), text.encode())


def test_sirocco_contradicts_itself_and_holds_a_copy(shared_dir: Path) -> None:
    read = STARPU.read(shared_dir / "examples/F10-starpu-overlap_sleep_1024_24.sirocco", Options())
    assert (5, ()) == (read.n_read, read.refused)
    told = [(a.device, o.outcomes, o.duration_s, o.spread_s) for a, o in pairs(read)]
    assert [  # sqrt(sum2 / n - (sum / n)^2), by hand: 2.030, 2.249, 2.081 and 2.053 us
        ("cpu0", 7190, 84.57435e-6, pytest.approx(2.02987e-6, rel=1e-4)),
        ("cuda0", 2187, 89.59785e-6, pytest.approx(2.24945e-6, rel=1e-4)),
        ("cuda2", 28, 90.97446e-6, pytest.approx(2.08062e-6, rel=1e-4)),
        ("cuda1", 591, 90.82936e-6, pytest.approx(2.05281e-6, rel=1e-4)),
    ] == told
    assert 4 == sum("contradicts sum, sum2 and n" in note for note in read.notes)
    assert 1 == sum("copied, counted once" in note for note in read.notes)
    assert any("4 combinations are promised, 5 are there" in note for note in read.notes)


def test_attila_ranks_devices_by_size_and_agrees_with_itself(shared_dir: Path) -> None:
    read = STARPU.read(shared_dir / "examples/F10-starpu-chol_model_potrf.attila", Options())
    assert (12, (), ()) == (read.n_read, read.refused, read.notes)
    mean_s = {(a.device, a.size_in): o.duration_s for a, o in pairs(read)}
    assert (3401.100e-6, 11307.95e-6) == (mean_s["cpu0", 409600.0], mean_s["cuda0", 409600.0])
    assert (75933.70e-6, 44253.57e-6) == (mean_s["cpu0", 3686400.0], mean_s["cuda0", 3686400.0])
    assert {"attila"} == {a.host for a, _ in pairs(read)}
    [spread_s] = [o.spread_s for a, o in pairs(read) if (a.device, a.size_in) == ("cpu0", 3686400.0)]
    assert pytest.approx(4030.251e-6, rel=1e-4) == spread_s


def test_mirage_does_not_say_whether_it_holds_times(shared_dir: Path) -> None:
    read = STARPU.read(shared_dir / "examples/F10-starpu-multi_2arr.mirage", Options())
    assert [(5.0, 94.42641e-6, 58, "unit=us"), (25.0, 93.40223e-6, 166, "unit=us")] == [
        (a.size_in, o.duration_s, o.outcomes, o.assumed) for a, o in pairs(read)
    ]
    assert {"cpu0"} == {a.device for a, _ in pairs(read)}


def test_hannibal_is_written_with_tabs(shared_dir: Path) -> None:
    read = STARPU.read(shared_dir / "examples/F10-starpu-slu_lu_model_getrf.hannibal", Options())
    assert (3, (), ()) == (read.n_read, read.refused, read.notes)
    assert [("cuda0", 0.1250229, 12), ("cuda1", 0.08424585, 570), ("cuda2", 0.08331807, 694)] == [
        (a.device, o.duration_s, o.outcomes) for a, o in pairs(read)
    ]
