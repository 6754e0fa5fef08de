"""The page in a real browser: it draws, follows choices, keeps them while it refreshes, and asks nobody but its own server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, Request, Response, expect, sync_playwright

from predictors.synthetic import runs
from service.client.sync import Client, http_client
from service.http.routes.page import PLOTS
from tests.service.living import Served, until

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
ROOT = Path(__file__).resolve().parents[2]
PLOTS_DRAWN = {
    "#density .scatterlayer .trace": 1,
    "#residual .scatterlayer .trace": 2,
    "#running .barlayer .trace": 3,
    "#coverage .scatterlayer .trace": 1,
    "#rates-plot .scatterlayer .trace": 1,
}
in_browser = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[BrowserContext]:
    """One profile for all tests, so that the plot library is read once."""
    if not CHROMIUM.exists():
        reason = f"{CHROMIUM} is not installed"
        if os.environ.get("PHASECAST_REQUIRE_SHARED") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
        browser.close()


@dataclass
class Watch:
    """A browser's view of a server, and everything that went wrong in it."""

    page: Page
    wrong: list[str] = field(default_factory=list)

    def open(self, url: str) -> Page:
        """Load the page; note errors, failed requests and requests to elsewhere from then on."""
        self.page.on("console", lambda said: said.type in {"error", "warning"} and self.wrong.append(said.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", lambda request: request.url.startswith((url, "data:")) or self.wrong.append(request.url))
        self.page.on("response", lambda answer: answer.status >= 400 and self.wrong.append(f"{answer.status}: {answer.url}"))
        self.page.goto(url + "/")
        return self.page

    def _failed(self, request: Request) -> None:
        """A request that leaving or reloading the page cuts short is no failure."""
        if request.failure != "net::ERR_ABORTED":
            self.wrong.append(f"failed: {request.url} ({request.failure})")


@pytest.fixture
def watch(chromium: BrowserContext) -> Iterator[Watch]:
    """A fresh browser window; nothing may go wrong in it."""
    seen = Watch(chromium.new_page())
    yield seen
    seen.page.close()
    assert [] == seen.wrong


@pytest.fixture(scope="module")
def drawn(chromium: BrowserContext, watched: Served) -> Watch:
    """The page of a server with something to show, all plots drawn."""
    seen = Watch(chromium.new_page())
    seen.open(watched.url)
    for plot in PLOTS_DRAWN:
        seen.page.locator(plot).first.wait_for(state="attached")
    return seen


@pytest.fixture
def page(drawn: Watch) -> Iterator[Page]:
    """That page, with the choices earlier tests made; nothing may go wrong in it."""
    yield drawn.page
    assert [] == drawn.wrong


def shape(page: Page, plot: str) -> str:
    """What the last line of a plot looks like."""
    return page.locator(f"{plot} .scatterlayer .js-line").last.get_attribute("d") or ""


def in_words(page: Page, seconds: float) -> str:
    """A time as the page writes it."""
    return str(page.evaluate("async seconds => (await import('/page/words.js')).time(seconds)", seconds))


def quantile(answer: Response, level: float) -> float:
    """A quantile of the one answer to a request, s."""
    [told] = answer.json()["answers"]
    return float(told["quantiles_s"][told["levels"].index(level)])


@in_browser
def test_five_plots_are_drawn_with_words_beside_them(page: Page) -> None:
    for plot, least in PLOTS_DRAWN.items():
        assert least <= page.locator(plot).count(), plot
    assert ["Shows", "Good", "If not"] * 7 == page.locator(".words dt").all_text_contents()
    expect(page.locator("#health")).to_have_text("answering")
    expect(page.locator("#empty")).to_be_hidden()
    expect(page.locator("#rates tr")).to_have_count(2)
    expect(page.locator("#rates")).to_contain_text("81.0 GFLOP/s")
    expect(page.locator("#coverage-rows tr").first).to_be_visible()


@in_browser
def test_another_phase_is_asked_about_and_drawn(page: Page) -> None:
    before = shape(page, "#density")
    with page.expect_response("**/v1/predict") as asked:
        page.get_by_label("Phase", exact=True).select_option("setup")
    expect(page.locator("#verdict")).to_contain_text(f"nine in ten within {in_words(page, quantile(asked.value, 0.9))}")
    assert before != shape(page, "#density")


@in_browser
def test_a_context_of_recent_work_is_sent_as_it_was_and_nothing_known_is_a_choice(page: Page) -> None:
    with page.expect_request("**/v1/predict") as asked:
        page.get_by_label("Context").select_option(label="Nothing known about it")
    assert [{}] == asked.value.post_data_json["contexts"]
    with page.expect_request("**/v1/predict") as asked:
        page.get_by_label("Context").select_option(label="north · cold · encoder · encoder@1 · cpu · batch 4")
    known = {"host": "north", "device": "cpu", "family": "encoder", "model": "encoder@1", "state": "cold", "batch": 4}
    assert [known] == asked.value.post_data_json["contexts"]


@in_browser
def test_waiting_longer_changes_what_is_left(page: Page) -> None:
    before = shape(page, "#residual")
    with page.expect_response("**/v1/residual") as asked:
        page.get_by_label("It has run for").focus()
        page.keyboard.press("PageUp")
    left = in_words(page, quantile(asked.value, 0.5))
    waited = in_words(page, asked.value.json()["answers"][0]["elapsed_s"])
    expect(page.locator("#remaining")).to_contain_text(f"After {waited}, half end within another {left}")
    expect(page.locator("#residual .legend")).to_contain_text(f"given {waited}")
    assert before != shape(page, "#residual")


@in_browser
def test_a_deadline_is_asked_about_and_its_chance_drawn(page: Page) -> None:
    page.get_by_label("Deadline, s from now").fill("1000")
    with page.expect_response("**/v1/chance") as asked:
        page.get_by_role("button", name="Ask for the chance").click()
    [answer] = asked.value.json()["answers"]
    assert ["setup", "service"] == [stage["kind"] for stage in asked.value.request.post_data_json["plans"][0]["stages"]]
    expect(page.locator("#chance-verdict")).to_contain_text(f"Done within {in_words(page, 1000)} with ")
    expect(page.locator("#chance-verdict")).to_contain_text(
        f"the p95 of its stages add up to {in_words(page, answer['sum_of_p95_s'])}"
    )
    expect(page.locator("#chance .scatterlayer .trace")).to_be_attached()
    expect(page.locator("#chance .annotation-text")).to_have_text("deadline")


@in_browser
def test_a_latest_start_is_asked_for_and_what_is_due_now_is_too_late(page: Page) -> None:
    page.get_by_label("Needed in, s from now").fill("100000")
    with page.expect_response("**/v1/latest-start") as asked:
        page.get_by_role("button", name="Ask for the latest start").click()
    [answer] = asked.value.json()["answers"]
    latest = in_words(page, answer["latest_start_s"])
    expect(page.locator("#start-verdict")).to_contain_text(f"Starting the setup within {latest}, it has ended within ")
    expect(page.locator("#start .scatterlayer .trace")).to_be_attached()
    page.get_by_label("Needed in, s from now").fill("0")
    page.get_by_label("Needed in, s from now").press("Enter")
    expect(page.locator("#start-verdict")).to_contain_text("Starting now, it has ended within 0 s with 0 %")
    expect(page.locator("#start .annotation-text")).to_have_text(["now", "needed"])


@in_browser
def test_answers_about_plans_go_with_the_context_they_are_about(page: Page) -> None:
    page.get_by_role("button", name="Ask for the chance").click()
    expect(page.locator("#chance")).to_be_visible()
    with page.expect_response("**/v1/predict"):
        page.get_by_role("button", name="Ask again").click()
    expect(page.locator("#chance")).to_be_hidden()
    expect(page.locator("#chance-verdict")).to_be_empty()


@in_browser
def test_logarithmic_time_is_drawn_from_the_same_answer(page: Page) -> None:
    before = shape(page, "#residual")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "predict" in request.url else None)
    page.get_by_label("Logarithmic time").check()
    assert before != shape(page, "#residual")
    assert [] == asked


@in_browser
def test_coverage_is_shown_for_the_level_chosen_worst_first(page: Page, watched: Served) -> None:
    told = httpx.get(f"{watched.url}/v1/reports/coverage", trust_env=False).json()
    page.get_by_label("Quantile", exact=True).select_option("0.5")
    gaps = {}
    for row in told["strata"]:
        one = row["exceeded"][0]
        gaps[row["phase"], row["state"], row["host"]] = max(one["sure_low"] - one["nominal"], one["nominal"] - one["sure_high"])
    first = page.locator("#coverage-rows tr").first.locator("th, td").all_text_contents()
    assert max(gaps.values()) == gaps[first[0], first[1], first[2]]
    expect(page.locator("#coverage .xtitle")).to_have_text("took longer than p50 (%)")


@in_browser
def test_a_stratum_leads_to_the_report_about_it(watch: Watch, watched: Served) -> None:
    page = watch.open(watched.url)
    page.get_by_label("Quantile", exact=True).select_option("0.95")
    first = page.locator("#coverage-rows tr").first
    phase = first.locator("th").text_content()
    first.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Phasecast report")).to_be_visible()
    assert ("at_start", phase, "0.95") == tuple(page.locator(f"#{name}").input_value() for name in ("asked", "phase", "level"))
    expect(page.locator("#coverage .scatterlayer .trace").first).to_be_attached()


@in_browser
def test_a_host_without_a_profile_says_so(page: Page) -> None:
    page.get_by_label("Host", exact=True).select_option("south")
    expect(page.locator("#host-note")).to_contain_text("never measured")
    expect(page.locator("#profile")).to_be_hidden()


@in_browser
def test_rates_of_one_quantity_are_drawn_with_their_condition_beside_them(page: Page) -> None:
    page.get_by_label("Host", exact=True).select_option("north")
    quantity = page.get_by_label("Quantity", exact=True)
    for unit, named in (("B/s", "memory copy"), ("FLOP/s", "matmul threads 2")):
        quantity.select_option(unit)
        expect(page.locator("#rates-plot .xtitle")).to_have_text(unit)
        expect(page.locator("#rates-plot .ytick")).to_have_text([named])
    expect(page.locator("#changes")).to_contain_text("Condition 1")


@in_browser
def test_the_theme_changes_and_is_remembered(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_label("Theme").select_option("dark")
    dark = page.evaluate(ground)
    assert light != dark
    expect(page.locator("#density .js-line")).to_have_css("stroke", "rgb(108, 176, 242)")
    page.reload()
    assert dark == page.evaluate(ground)
    page.get_by_label("Theme").select_option("auto")
    assert light == page.evaluate(ground)


@in_browser
def test_figures_refresh_by_themselves_and_choices_stay(page: Page, watched: Served) -> None:
    page.get_by_label("Phase", exact=True).select_option("completion")
    page.get_by_label("Quantile", exact=True).select_option("0.95")
    page.get_by_label("It has run for").fill("40")
    page.get_by_label("Context").select_option(label="Nothing known about it")
    ended = page.locator("#state div", has_text="Phases that ended").locator("dd")
    before = ended.text_content()
    with http_client(watched.url) as http:
        [run] = runs(1, seed=77)
        Client(http).ingest([run.attempt.model_dump(exclude_none=True)], [e.model_dump(exclude_none=True) for e in run.events])
    expect(ended).not_to_have_text(before or "", timeout=10_000)
    expect(page.get_by_role("button", name="more was learned since")).to_be_visible()
    with page.expect_response("**/v1/hosts", timeout=15_000):  # the last of the calls made less often
        pass
    chosen = {"phase": "completion", "level": "0.95", "elapsed": "40", "context": "{}"}
    assert chosen == {name: page.locator(f"#{name}").input_value() for name in chosen}


@in_browser
def test_names_sent_by_others_are_text_and_never_markup(page: Page, watched: Served) -> None:
    name, host = "<b>name</b>", "<img src=x>"
    place = {"attempt_id": name, "source": "other", "clock_id": "other/1"}
    start = {"event_id": "m-1", "kind": "phase_start", "wall_ns": time.time_ns(), "monotonic_ns": 0, **place}
    with http_client(watched.url) as http:
        Client(http).ingest([{"attempt_id": name, "host": host}], [start])
        expect(page.locator("#running-rows")).to_contain_text(name, timeout=10_000)
        assert 0 == page.locator("#main img").count()
        expect(page.locator("#running .ytick", has_text=name).first).to_be_visible()
        Client(http).ingest([], [start | {"event_id": "m-2", "kind": "failed", "monotonic_ns": 1}])


@in_browser
def test_an_empty_store_says_what_to_send(watch: Watch, served: Served) -> None:
    page = watch.open(served.url)
    expect(page.get_by_role("heading", name="Nothing is known yet")).to_be_visible()
    expect(page.locator("#empty code").nth(2)).to_contain_text(f"curl -X POST {served.url}/v1/events")
    expect(page.locator("#health")).to_have_text("waiting for the first outcomes")
    for section in ("ask", "now", "truth", "machines"):
        expect(page.locator(f"#{section}")).to_be_hidden()


@in_browser
def test_a_refusal_is_told_as_a_sentence(watch: Watch, watched: Served) -> None:
    told = {"field": "phase", "fix": "POST their events to /v1/events first"}
    watch.page.route("**/v1/predict", lambda route: route.fulfill(status=409, json=told))
    page = watch.open(watched.url)
    expect(page.get_by_role("alert")).to_have_text("phase: POST their events to /v1/events first.")
    assert all("409" in one for one in watch.wrong)
    watch.wrong.clear()


@in_browser
def test_it_fits_a_small_screen_and_every_control_has_a_name(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    expect(page.locator("#density .main-svg").first).not_to_have_css("width", "0px")
    until(lambda: page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))
    page.set_viewport_size({"width": 1280, "height": 900})
    assert [] == page.evaluate("[...document.querySelectorAll('select, input')].filter(c => !c.labels.length).map(c => c.id)")
    assert ["H1", *["H2"] * 7] == page.evaluate("[...document.querySelectorAll('h1, h2')].map(h => h.tagName)")


def test_the_page_may_load_nothing_from_elsewhere(asked: httpx.Client) -> None:
    answer = asked.get("/")
    assert "text/html; charset=utf-8" == answer.headers["content-type"]
    policy = answer.headers["content-security-policy"].split("; ")
    assert "default-src 'self'" in policy
    assert not [part for part in policy if part.startswith("script-src")]
    assert f'src="/page/{PLOTS}"' in answer.text
    assert "http://" not in answer.text.replace("http://www.w3.org", "")


def test_the_plot_library_is_kept_by_the_browser_and_the_rest_asked_anew(asked: httpx.Client) -> None:
    assert "immutable" in asked.get(f"/page/{PLOTS}").headers["cache-control"]
    for path, media in (("page.js", "text/javascript"), ("page.css", "text/css"), ("favicon.svg", "image/svg+xml")):
        answer = asked.get(f"/page/{path}")
        assert (200, "no-cache") == (answer.status_code, answer.headers["cache-control"])
        assert answer.headers["content-type"].startswith(media)
    assert "image/svg+xml" == asked.get("/favicon.ico").headers["content-type"].split(";")[0]


@pytest.mark.parametrize("name", ["none.js", "page.html", "..%2fapp.py", "..%2f..%2f..%2fpyproject.toml", "plotly-0.0.0.min.js"])
def test_no_other_file_can_be_had(asked: httpx.Client, name: str) -> None:
    assert 404 == asked.get(f"/page/{name}").status_code


def test_a_built_wheel_contains_the_page(tmp_path: Path) -> None:
    for package in ("telemetry", "predictors", "calibrate", "service"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    here = {f"service/http/page/{path.name}" for path in (ROOT / "service/http/page").iterdir()}
    assert "service/http/page/page.html" in here
    assert here <= set(zipfile.ZipFile(wheel).namelist())
