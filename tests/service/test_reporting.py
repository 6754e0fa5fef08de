"""Reports: the page, the files and the API tell the same numbers, and anybody can compute them again from a snapshot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import sync_playwright
from typer.testing import CliRunner

from service import reporting
from service.cli.main import app
from service.client.sync import http_client
from service.report_page import page
from telemetry.errors import BadField
from telemetry.store.file import Store
from telemetry.words import Ended
from tests.service.living import Served
from tests.service.test_page import CHROMIUM, FLAGS
from tests.telemetry.answered import answer, batch

PARTS = ("coverage", "sharpness", "support", "drift")
DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


@pytest.fixture(scope="module")
def look(watched: Served) -> Iterator[httpx.Client]:
    with http_client(watched.url, timeout_s=60) as client:
        yield client


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nobody holds, with answers of two hosts, one of them with a name made to break out of a page."""
    path = tmp_path_factory.mktemp("filled") / "s.duckdb"
    told = [answer(i, 5.0 + 90.0 * (i * 7 % 60) / 60, Ended.CANCELLED if i % 9 == 0 else Ended.COMPLETED) for i in range(60)]
    told += [answer(60 + i, 95.0, context={"host": "</script><img src=x>"}) for i in range(12)]
    told += [answer(100 + i, 40.0, elapsed_s=30.0) for i in range(6)]
    with Store.open(path) as store:
        store.write(batch(told))
    return path


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["report", *arguments])


def within(text: str) -> dict[str, Any]:
    """The figures in a page."""
    [data] = DATA.findall(text)
    return dict(json.loads(data))


def test_the_page_tells_the_numbers_of_the_api_to_the_last_digit(look: httpx.Client) -> None:
    while True:  # until nothing was committed meanwhile
        answered = look.get("/v1/reports/page")
        parts = {part: look.get(f"/v1/reports/{part}").json() for part in PARTS}
        told = within(answered.text)
        if {told["as_of_commit"]} == {part["as_of_commit"] for part in parts.values()}:
            break
    assert "text/html; charset=utf-8" == answered.headers["content-type"]
    assert 0 < told["coverage"]["answers"]
    assert parts == {part: told[part] for part in PARTS}


FIGURES: dict[str, Callable[[dict[str, Any], list[dict[str, Any]]], tuple[Any, Any]]] = {
    "coverage": lambda told, rows: (
        sorted((s["n"], s["exceeded"][1]["misses"], s["exceeded"][1]["weighted"]) for s in every(told["coverage"])),
        sorted((r["n"], r["misses_90"], r["weighted_90"]) for r in rows),
    ),
    "sharpness": lambda told, rows: (
        sorted((s["crps_log"], s["crps_unconditional"], s["mean_bias"]) for s in every(told["sharpness"])),
        sorted((r["crps_log"], r["crps_unconditional"], r["mean_bias"]) for r in rows),
    ),
    "pit": lambda told, rows: (
        [w for one in told["coverage"]["pit"] for w in one["weights"] if w > 0],
        [r["weight"] for r in rows],
    ),
    "over_time": lambda told, rows: (
        [(p["from_ns"], p["n"], [e["misses"] for e in p["exceeded"]]) for p in told["coverage"]["over_time"]],
        [(r["from_ns"], r["n"], [r[f"misses_{level}"] for level in (50, 90, 95, 99)]) for r in rows],
    ),
    "support": lambda told, rows: (
        sorted((s["answers"], s["thin"], s["median_n_eff"]) for s in every(told["support"])),
        sorted((r["answers"], r["thin"], r["median_n_eff"]) for r in rows),
    ),
    "elapsed": lambda told, rows: (
        [(e["elapsed_from"], e["n"], e["exceeded"][0]["misses"]) for e in told["coverage"]["elapsed"]],
        [(r["elapsed_from"], r["n"], r["misses_50"]) for r in rows],
    ),
}


def every(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [*part["strata"], *part["margins"], *part["pooled"]]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_result_of_the_query_beside_it(filled: Path, name: str) -> None:
    told = json.loads(command("--store", str(filled), "--json").stdout)
    queries = {text: part for part in PARTS for text, part in [(told[part]["queries"]["figures"].get(name), part)] if text}
    [(query, part)] = queries.items()
    with duckdb.connect(str(filled), read_only=True) as plain:
        for statement in told[part]["queries"]["setup"]:
            plain.execute(statement)
        rows = plain.execute(query).to_arrow_table().to_pylist()
    expected, found = FIGURES[name](told, rows)
    assert expected
    assert expected == found


def test_files_of_all_three_kinds_have_the_same_numbers(filled: Path, tmp_path: Path) -> None:
    for suffix in (".html", ".json", ".parquet"):
        done = command("--store", str(filled), "--out", str(tmp_path / f"r{suffix}"))
        assert (0, True) == (done.exit_code, "78 answers as of commit 1" in done.stdout)
    told = json.loads((tmp_path / "r.json").read_text())
    assert told == within((tmp_path / "r.html").read_text())
    rows = pq.read_table(tmp_path / "r.parquet").to_pylist()
    at = {"report": "coverage", "figure": "pooled", "asked": "at_start", "level": 0.9, "measure": "share"}
    [found] = [row["value"] for row in rows if at.items() <= row.items()]
    assert told["coverage"]["pooled"][0]["exceeded"][1]["share"] == found
    assert 1 == sum(row["measure"] == "skill" and row["figure"] == "pooled" and row["asked"] == "at_start" for row in rows)


def test_the_text_names_the_worst_and_the_way_to_more(filled: Path) -> None:
    told = command("--store", str(filled)).stdout
    assert "78 answers with outcomes as of commit 1" in told
    assert "Farthest off: service" in told
    assert "--out FILE.html" in told


def test_a_served_store_is_reported_by_its_server(watched: Served) -> None:
    told = json.loads(command("--store", str(watched.store), "--json", "--newest", "7").stdout)
    assert (7, 7) == (told["newest"], told["coverage"]["answers"])


def test_a_file_of_another_kind_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    done = command("--store", str(tmp_path / "none.duckdb"), "--out", "report.pdf")
    assert isinstance(done.exception, BadField)
    assert "--out" == done.exception.field


def test_an_empty_store_has_a_report_that_promises_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.duckdb") as store, store.reader() as reader:
        told = reporting.report(reader, 0, 10)
    assert (0, None, [], [], []) == (
        told.coverage.answers, told.coverage.worst, told.coverage.strata, told.sharpness.pooled, told.drift.changes,
    )  # fmt: skip
    assert "As of commit" in page(told)


def test_a_name_can_not_break_out_of_the_page(filled: Path) -> None:
    with Store.open(filled) as store, store.reader() as reader:
        told = reporting.report(reader, 1, 100)
    made = page(told)
    assert "</script>" in told.coverage.model_dump_json()
    assert 3 == made.count("</script>")
    assert "default-src 'none'" in made
    assert len(made) < 10_000_000


DRAWN_OR_TOLD = """all => [
    all.map(one => one.querySelectorAll('.main-svg').length > 0),
    all.map(one => one.parentElement.querySelector('.note').checkVisibility()),
]"""
NO_PLOT = """[...document.querySelectorAll('#sections .plot')].filter(one => one.hidden)
    .map(one => one.parentElement.querySelector('h2').textContent)"""


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is not installed")
def test_opened_from_disk_it_draws_every_plot_and_asks_nobody(filled: Path, tmp_path: Path) -> None:
    command("--store", str(filled), "--out", str(tmp_path / "r.html"))
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        seen = browser.new_page(viewport={"width": 360, "height": 740}, color_scheme="dark")
        seen.on("console", lambda said: wrong.append(said.text))
        seen.on("pageerror", lambda error: wrong.append(str(error)))
        seen.on("request", lambda request: request.url.startswith(("file:", "data:")) or wrong.append(request.url))
        seen.goto(f"file://{tmp_path / 'r.html'}#asked=while_running&level=0.5")
        drawn, told = seen.locator("#sections .plot").evaluate_all(DRAWN_OR_TOLD)
        assert [not plot for plot in drawn] == told  # of a plot that has nothing to draw it is said
        assert (10, 8) == (len(drawn), sum(drawn))  # answers given while running have no simple forecasts beside them
        assert ["Shows", "Good", "If not"] * 12 == seen.locator(".words dt").all_text_contents()
        assert ("while_running", "0.5") == tuple(seen.locator(f"#{name}").input_value() for name in ("asked", "level"))
        assert "0 of 6" in seen.locator("#coverage-under").inner_text()
        assert seen.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        seen.get_by_label("Answers asked for").select_option("at_start")
        seen.wait_for_function("document.querySelectorAll('#sections .main-svg').length > 0 && " + NO_PLOT + ".length === 1")
        assert ["Plans"] == seen.evaluate(NO_PLOT)
        assert "</script><img src=x>" in seen.locator("#coverage-under").inner_text()
        assert 0 == seen.locator("main img").count()
        dark = seen.evaluate("getComputedStyle(document.body).backgroundColor")
        seen.get_by_label("Theme").select_option("light")
        assert dark != seen.evaluate("getComputedStyle(document.body).backgroundColor")
        browser.close()
    assert [] == wrong
