import gzip
from pathlib import Path

import pytest

from telemetry.importers.arrivals import ARRIVALS
from telemetry.importers.contract import Found, Options

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2024-05-10 00:00:00.009930+00:00,3180,8\r\n"
)
NOTHING = ("arrivals and counts of tokens, no durations: nothing to learn from",)


def found(folder: Path, text: str) -> Found:
    path = folder / "trace.csv"
    path.write_bytes(text.encode())
    return ARRIVALS.read(path, Options())


def test_arrivals_make_no_row_and_say_that_nothing_can_be_learnt_from_them(tmp_path: Path) -> None:
    assert Found((), 2, (), NOTHING) == found(tmp_path, AZURE)
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(AZURE.encode()))
    assert Found((), 2, (), NOTHING) == ARRIVALS.read(packed, Options())


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("yesterday,1,2", "a time such as"),
        ("2023-11-16 18:17:03,-1,2", "'-1' is no count"),
        ("2023-11-16 18:17:03,1,", "'' is no count"),
        ("2023-11-16 18:17:03,1", "2 cells"),
    ],
)
def test_a_damaged_record_is_refused_with_its_line(tmp_path: Path, record: str, reason: str) -> None:
    read = found(tmp_path, f"{AZURE}{record}\r\n")
    [refusal] = read.refused
    assert (3, 4) == (read.n_read, refusal.line)
    assert reason in refusal.reason


def test_columns_may_be_spelt_and_ordered_otherwise() -> None:
    for header in ("arrived_at,num_prefill_tokens,num_decode_tokens", "Output Tokens;Input Tokens;Timestamp", AZURE):
        assert ARRIVALS.recognises(Path("x"), header.encode())
    for header in ("TIMESTAMP,ContextTokens", "TIMESTAMP,ContextTokens,GeneratedTokens,latency", "start,end,duration_s", ""):
        assert not ARRIVALS.recognises(Path("x"), header.encode())


def test_seconds_from_a_start_of_their_own_are_times_too(tmp_path: Path) -> None:
    assert Found((), 1, (), NOTHING) == found(tmp_path, "arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,100,200\n")


def test_azure_trace_is_read_to_its_end(shared_dir: Path) -> None:
    path = shared_dir / "examples/F18-azure-llm-code-first500.csv"
    assert ARRIVALS.recognises(path, path.read_bytes())
    assert Found((), 499, (), NOTHING) == ARRIVALS.read(path, Options())
