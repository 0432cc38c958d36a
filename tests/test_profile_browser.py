"""The page of a profile in a real browser: no error, no request, every section, no sideways scrolling."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.reporting import profile_page
from tests import profile_sample

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
SAMPLES = ("digits", "gpu", "bare", "hostile")


def missing(reason: str) -> None:
    """Skip and say why; with HOGBOOST_REQUIRE_BROWSER=1 fail instead."""
    if os.environ.get("HOGBOOST_REQUIRE_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        missing(f"needs a browser, one of {', '.join(BROWSERS)}; Debian: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("needs playwright, which is not installed: pip install 'hogboost[test]'")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The address of each sample's page."""
    folder = tmp_path_factory.mktemp("pages")
    return {
        name: profile_page.write(getattr(profile_sample, name)(), folder / name)[0].as_uri()
        for name in SAMPLES
    }


@pytest.fixture
def opened(browser, pages):
    """Open a page; at the end it must have made no request and no complaint."""
    said: list[str] = []
    contexts = []

    def open_page(name: str, width: int, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        address = pages[name]
        page.on("console", lambda message: said.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: (
                request.url.split("#")[0] in (address, "data:,") or said.append(f"request: {request.url}")
            ),
        )
        page.goto(address, wait_until="load")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


@pytest.mark.parametrize("name", SAMPLES)
def test_a_page_opens_with_every_section_and_fits(opened, name):
    """A wide and a narrow window, each light and dark; closed, then with everything opened."""
    page = opened(name, 1280)
    folded = page.evaluate("[...document.querySelectorAll('details')].map(one => one.open)")
    for width, scheme in itertools.product((1280, 400), ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.evaluate(
            "open => document.querySelectorAll('details').forEach((one, k) => { one.open = open[k] })", folded
        )
        for section in profile_page.SECTIONS:
            box = page.locator(f"#{section}").bounding_box()
            assert box is not None, section
            assert box["height"] > 40, section
            assert box["width"] > 0.8 * min(width, 1088), section
        for opening in ("false", "true"):
            page.evaluate(f"document.querySelectorAll('details').forEach(one => {{ one.open = {opening} }})")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            beyond = page.evaluate(
                """() => [...document.querySelectorAll('body *')]
                     .filter(e => e.offsetParent !== null && !e.closest('.scroll'))
                     .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"""
            )
            assert beyond == []
            page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 27)")


@pytest.mark.parametrize(("width", "shown", "hidden"), [(1280, "wide", "narrow"), (400, "narrow", "wide")])
def test_text_in_plots_can_be_read_at_both_widths(opened, width, shown, hidden):
    page = opened("digits", width)
    assert page.locator(f".{shown} svg").is_visible()
    assert not page.locator(f".{hidden} svg").is_visible()
    heights = page.evaluate(
        """() => [...document.querySelectorAll('svg text')]
             .filter(e => e.getClientRects().length && !e.getAttribute('transform'))
             .map(e => e.getBoundingClientRect().height)"""
    )
    assert len(heights) > 40
    assert min(heights) >= 11


@pytest.mark.slow
def test_names_in_the_roofline_do_not_cover_each_other(opened):
    for name in ("digits", "gpu"):
        for width in (1280, 400):
            boxes = opened(name, width).evaluate(
                """() => [...document.querySelectorAll('#roofline svg .name')].filter(e => e.getClientRects().length)
                     .map(e => e.getBoundingClientRect()).map(b => [b.left, b.top + 3, b.right, b.bottom - 3])"""
            )
            assert len(boxes) == 4
            for k, a in enumerate(boxes):
                for b in boxes[:k]:
                    assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_bars_are_as_long_as_the_figures_say(opened):
    page = opened("digits", 1280)
    wide = page.evaluate(
        "[...document.querySelectorAll('#stages .fill')].map(e => e.getBoundingClientRect().width)"
    )
    seconds = sorted((s.wall for s in profile_sample.digits().stages if s.share >= 0.01), reverse=True)
    assert [w / wide[0] for w in wide] == pytest.approx([s / seconds[0] for s in seconds], abs=0.01)


def test_an_override_is_copied_as_it_stands(opened):
    page = opened("digits", 1280)
    page.evaluate(
        "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve() }"
    )
    button = page.locator("#advice [data-copy]").nth(1)  # the first is the command that packs
    button.click()
    page.wait_for_function("window.copied !== undefined")
    assert page.evaluate("window.copied") == profile_sample.digits().advice[0].override
    page.wait_for_function("document.querySelectorAll('#advice [data-copy]')[1].textContent === 'Copied'")


def test_links_lead_to_sections_that_exist(opened):
    page = opened("bare", 400)
    targets = page.evaluate("[...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))")
    assert targets == [name for name in profile_page.SECTIONS if name != "summary"]
