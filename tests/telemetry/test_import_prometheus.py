import gzip
from pathlib import Path

import pytest

from telemetry.importers.contract import Found, Options
from telemetry.importers.prometheus import PROMETHEUS
from telemetry.tables import Attempt, Observation
from telemetry.words import Ended

WAITS = """\
# HELP app_wait_seconds Time waited.
# TYPE app_wait_seconds histogram
app_wait_seconds_bucket{le="0.3",model_name="m"} 2.0
app_wait_seconds_bucket{le="1.0",model_name="m"} 2.0
app_wait_seconds_bucket{le="60.0",model_name="m"} 95.0
app_wait_seconds_bucket{le="+Inf",model_name="m"} 100.0
app_wait_seconds_sum{model_name="m"} 2345.0
app_wait_seconds_count{model_name="m"} 100.0
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7181405583e+09
"""


def found(folder: Path, text: str, **options: str) -> Found:
    path = folder / "metrics.txt"
    path.write_text(text)
    assert PROMETHEUS.recognises(path, text.encode())
    return PROMETHEUS.read(path, Options(**options))


def observations(read: Found) -> list[Observation]:
    return [row for row in read.rows if isinstance(row, Observation)]


def attempts(read: Found) -> list[Attempt]:
    return [row for row in read.rows if isinstance(row, Attempt)]


def test_buckets_become_intervals_with_their_own_counts_and_the_top_is_censored(tmp_path: Path) -> None:  # P11, P12
    read = found(tmp_path, WAITS)
    assert [
        (0.3, 0.3, 2, Ended.COMPLETED),  # within (0, 0.3]: nothing finer is known
        (60.0, 59.0, 93, Ended.COMPLETED),
        (60.0, 0.0, 5, Ended.LOST),  # longer than 60 s, nobody knows how much
    ] == [(row.duration_s, row.resolution_s, row.outcomes, row.ended) for row in observations(read)]
    assert {("app_wait", None, None)} == {(row.phase, row.assumed, row.started_ns) for row in observations(read)}
    [attempt] = attempts(read)
    assert ("m", 'app_wait_seconds{model_name="m"}', None) == (attempt.model, attempt.node_id, attempt.host)
    assert (7, ()) == (read.n_read, read.refused)


def test_no_row_of_a_histogram_passes_for_a_single_exact_outcome(tmp_path: Path) -> None:
    lonely = WAITS.replace("95.0", "99.0")
    assert 1 == observations(found(tmp_path, lonely))[-1].outcomes
    assert all(row.resolution_s is not None for row in observations(found(tmp_path, lonely)))


def test_a_later_scrape_replaces_the_counts_and_another_run_or_host_does_not(tmp_path: Path) -> None:
    first = found(tmp_path, WAITS)
    assert first == found(tmp_path, WAITS)
    later = found(tmp_path, WAITS.replace("100.0", "101.0"))
    assert [row.observation_id for row in observations(first)] == [row.observation_id for row in observations(later)]
    assert attempts(first) == attempts(later)
    for other in (found(tmp_path, WAITS.replace("1.7181405583e+09", "1.8e+09")), found(tmp_path, WAITS, host="h")):
        assert attempts(first)[0].attempt_id != attempts(other)[0].attempt_id


def test_a_series_without_anything_to_know_it_by_says_so(tmp_path: Path) -> None:
    unnamed = WAITS.replace("process_start_time_seconds", "process_open_fds")
    assert any("say --host" in note for note in found(tmp_path, unnamed).notes)
    assert not any("say --host" in note for note in found(tmp_path, WAITS).notes)
    assert not any("say --host" in note for note in found(tmp_path, unnamed.replace("model_name", "instance")).notes)


def test_what_is_no_histogram_of_times_makes_no_row(tmp_path: Path) -> None:
    text = """\
# TYPE x_tokens_total histogram
x_tokens_total_bucket{le="1"} 3
x_tokens_total_bucket{le="+Inf"} 4
# TYPE x_seconds_total counter
x_seconds_total 9
# TYPE x_rpc_seconds summary
x_rpc_seconds{quantile="0.5"} 0.2
x_rpc_seconds_sum 3
x_rpc_seconds_count 10
# TYPE x_use_perc gauge
x_use_perc 0.25
"""
    read = found(tmp_path, text)
    assert (7, ()) == (read.n_read, read.rows)
    assert (
        "1 histograms are of no time and were left out: x_tokens_total",
        "no lengths of single pieces of work in samples of other kinds: 1 counter, 1 gauge, 3 summary",
        "no time histogram with anything in it: nothing to learn from",
    ) == read.notes


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('{le="60.0",model_name="m"} 95.0', '{le="60.0",model_name="m"} 1.0', "counts must not fall"),
        ('{le="+Inf",model_name="m"} 100.0', '{le="+Inf",model_name="m"} 94', "counts must not fall"),
        ('{le="60.0",model_name="m"} 95.0', '{le="60.0",model_name="m"} 95.5', "95.5 is no count"),
        ('{le="60.0",model_name="m"} 95.0', '{le="60.0",model_name="m"} NaN', "NaN is no count"),
        ('{le="60.0",model_name="m"}', '{le="soon",model_name="m"}', "no edge"),
        ('{le="60.0",model_name="m"}', '{le="1",model_name="m"}', "stands twice"),
        ('{le="0.3",model_name="m"}', '{le="-0.3",model_name="m"}', "not lengths of time"),
        ('{le="60.0",model_name="m"}', '{le="1e300",model_name="m"}', "292 years"),
    ],
)
def test_a_series_that_contradicts_itself_is_refused_whole_and_the_rest_goes_on(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    good = 'b_seconds_bucket{le="1"} 1\nb_seconds_bucket{le="+Inf"} 1\n'
    read = found(tmp_path, WAITS.replace(old, new) + "# TYPE b_seconds histogram\n" + good)
    [refusal] = read.refused
    assert reason in refusal.reason
    assert refusal.item.startswith("app_wait_seconds{")
    assert [1.0] == [row.duration_s for row in observations(read)]


def test_a_line_that_is_no_sample_is_refused_with_its_number(tmp_path: Path) -> None:
    read = found(tmp_path, WAITS + 'broken{le="1" 3\n')
    assert [(11, "sample")] == [(refusal.line, refusal.item) for refusal in read.refused]
    assert 3 == len(observations(read))


def test_labels_may_hold_anything_and_samples_carry_times_and_exemplars(tmp_path: Path) -> None:
    text = (
        "# TYPE a_seconds histogram\n"
        "# UNIT a_seconds seconds\n"
        'a_seconds_bucket{path="/a,b\\"}{\\\\",le="0.5"} 3 1718140558.3 # {trace_id="x y"} 0.4 1718140558\n'
        'a_seconds_bucket{path="/a,b\\"}{\\\\",le="+Inf",} 3\n'
        'a_seconds_created{path="/a,b\\"}{\\\\"} 1.7e+09\n# EOF\n'
    )
    read = found(tmp_path, text)
    assert () == read.refused
    assert [(0.5, 3)] == [(row.duration_s, row.outcomes) for row in observations(read)]
    assert 'a_seconds{path="/a,b"}{\\"}' == attempts(read)[0].node_id
    assert not any("say --host" in note for note in read.notes)  # the series' own birth tells it from others


def test_units_come_from_the_name_the_unit_line_the_help_or_are_assumed(tmp_path: Path) -> None:  # T13
    def one(name: str, before: str = "", **options: str) -> tuple[str, float | None, str | None]:
        text = f'{before}# TYPE {name} histogram\n{name}_bucket{{le="500"}} 1\n{name}_bucket{{le="+Inf"}} 1\n'
        [row] = observations(found(tmp_path, text, **options))
        return row.phase, row.duration_s, row.assumed

    assert ("queue", 500.0, None) == one("queue_seconds")
    assert ("queue", 0.5, None) == one("queue_milliseconds")
    assert ("queue", 5e-7, None) == one("queue_ns")
    assert ("queue_time", 0.5, None) == one("queue_time", "# UNIT queue_time milliseconds\n")
    assert ("queue_time", 5e-4, None) == one("queue_time", "# HELP queue_time Time queued (us).\n")
    assert ("queue_time", 500.0, "unit=s") == one("queue_time")
    assert ("queue_time", 0.5, None) == one("queue_time", unit="ms")


def test_a_rate_is_no_time(tmp_path: Path) -> None:
    assert () == found(tmp_path, '# TYPE tokens_per_s histogram\ntokens_per_s_bucket{le="9"} 1\n').rows


def test_milliseconds_put_into_buckets_of_seconds_are_flagged(tmp_path: Path) -> None:  # T13
    wrong = WAITS.replace("95.0", "3.0").replace("2345.0", "2345000.0")
    assert any("unit smaller by 1000 than s" in note for note in found(tmp_path, wrong).notes)
    outside = WAITS.replace("95.0", "100.0").replace("2345.0", "7000.0")
    assert any("lies outside what the buckets allow" in note for note in found(tmp_path, outside).notes)
    assert not any("unit" in note or "outside" in note for note in found(tmp_path, WAITS).notes)


def test_undeclared_buckets_are_a_histogram_and_its_count_stands_for_a_missing_last_one(tmp_path: Path) -> None:
    text = 'a_seconds_bucket{le="1",host="n1"} 3\na_seconds_bucket{le="2",host="n1"} 4\na_seconds_count{host="n1"} 6\n'
    read = found(tmp_path, text)
    assert [(1.0, 3, "completed"), (2.0, 1, "completed"), (2.0, 2, "lost")] == [
        (row.duration_s, row.outcomes, row.ended) for row in observations(read)
    ]
    assert ["n1"] == [attempt.host for attempt in attempts(read)]


def test_a_type_given_to_the_parts_of_a_histogram_is_taken_for_its_own(tmp_path: Path) -> None:
    buckets = 'a_duration_bucket{le="0.5"} 200\na_duration_bucket{le="+Inf"} 1000\n'
    text = f"# TYPE a_duration_bucket histogram\n{buckets}# TYPE a_duration_count counter\na_duration_count 1000\n"
    read = found(tmp_path, text)
    assert [("a_duration", 200, "completed"), ("a_duration", 800, "lost")] == [
        (row.phase, row.outcomes, row.ended) for row in observations(read)
    ]


def test_thirty_days_and_the_edge_of_32_bits_survive(tmp_path: Path) -> None:  # T14
    edges = ("2147483.647", "2147483.649", "2592000")
    buckets = "".join(f'job_seconds_bucket{{le="{edge}"}} {i + 1}\n' for i, edge in enumerate(edges))
    read = found(tmp_path, f"# TYPE job_seconds histogram\n{buckets}")
    assert [(2147483.647, 2147483.647), (2147483.649, 0.002), (2592000.0, 444516.351)] == [
        (row.duration_s, row.resolution_s) for row in observations(read)
    ]


def test_packed_and_marked_files_are_read_too(tmp_path: Path) -> None:
    plain = found(tmp_path, WAITS)
    path = tmp_path / "metrics.txt.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + WAITS.encode()))
    assert plain == PROMETHEUS.read(path, Options())


def test_other_text_is_not_recognised() -> None:
    for text in ("##################\n# Performance Model Version\n45\n", "a,b\n1,2\n", "{}", "a 1\nb 2\n", "# TYPE of thing\n"):
        assert not PROMETHEUS.recognises(Path("x"), text.encode())


def test_vllm_metrics_keep_families_apart_and_are_no_finer_than_their_buckets(shared_dir: Path) -> None:
    read = PROMETHEUS.read(shared_dir / "examples/F03-vllm-metrics.txt", Options())
    assert () == read.refused
    told = {(o.phase, o.segment): (o.duration_s, o.resolution_s, o.outcomes) for o in observations(read)}
    assert {
        ("e2e_request_latency", 0): (1.0, 1.0, 1),  # 0.5 s, but all that is told is (0, 1]
        ("time_to_first_token", 9): (0.5, 0.25, 1),
        ("time_per_output_token", 2): (0.05, 0.025, 6),
        ("inter_token_latency", 0): (0.01, 0.01, 141),
        ("inter_token_latency", 1): (0.1, 0.09, 3),
        ("request_time_per_output_token", 0): (0.01, 0.01, 6),
        ("request_queue_time", 0): (0.3, 0.3, 6),
        ("request_inference_time", 0): (0.3, 0.3, 6),
        ("request_prefill_time", 0): (0.3, 0.3, 6),
        ("request_decode_time", 0): (0.3, 0.3, 6),
    } == told
    assert {("vllm", "facebook/opt-125m")} == {(a.family, a.model) for a in attempts(read)}
    assert any("vllm:iteration_tokens_total" in note and "no time" in note for note in read.notes)
    assert any("vllm:e2e_request_latency_seconds 1" in note and "do not add up" in note for note in read.notes)
    assert not any("cache_usage_perc" in str(row) for row in read.rows)
