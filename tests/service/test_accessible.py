"""What axe-core finds wrong with the pages: nothing serious, in either theme, on a wide screen and on a narrow one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, sync_playwright

from tests.service.living import Served
from tests.service.test_page import CHROMIUM, FLAGS, PLOTS_DRAWN

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium; test_page.py says if it must be"),
]
SCREENS = {"light": ("light", 1280), "dark": ("dark", 1280), "narrow": ("light", 360), "narrow and dark": ("dark", 360)}
TWO = ("light", "narrow and dark")
"""Screens between them of either theme and either width; the other two are looked at with the slow tests."""
ALL = [pytest.param(screen, marks=[] if screen in TWO else pytest.mark.slow) for screen in SCREENS]


@pytest.fixture(scope="module")
def chromium() -> Iterator[BrowserContext]:
    """One profile for all, with pages that stand still."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser.new_context(reduced_motion="reduce")
        browser.close()


def serious(page: Page) -> list[tuple[str, list[Any]]]:
    """Rules broken with an impact of serious or worse, and where."""
    found = Axe().run(page).response["violations"]
    return [(one["id"], [node["target"] for node in one["nodes"]]) for one in found if one["impact"] in {"serious", "critical"}]


def shown(chromium: BrowserContext, screen: str) -> Page:
    scheme, width = SCREENS[screen]
    page = chromium.new_page()
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 900})
    return page


@pytest.mark.parametrize("screen", ALL)
def test_the_live_page(chromium: BrowserContext, watched: Served, screen: str) -> None:
    page = shown(chromium, screen)
    page.goto(watched.url)
    for plot in PLOTS_DRAWN:
        page.locator(plot).first.wait_for(state="attached")
    assert [] == serious(page)
    page.close()


@pytest.mark.parametrize("screen", ALL)
def test_the_report(chromium: BrowserContext, watched: Served, screen: str) -> None:
    page = shown(chromium, screen)
    page.goto(f"{watched.url}/v1/reports/page")
    page.locator("#coverage .scatterlayer .trace").first.wait_for(state="attached")
    assert [] == serious(page)
    page.close()


def test_the_page_of_an_empty_store(chromium: BrowserContext, served: Served) -> None:
    page = shown(chromium, "light")
    page.goto(served.url)
    page.get_by_role("heading", name="Nothing is known yet").wait_for()
    assert [] == serious(page)
    page.close()
