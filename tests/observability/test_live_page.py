"""The live page in a real browser: what it shows of a running pipeline, on a desk and a phone, by day and by night."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import BrowserMissingError, browser
from observed_kit import Watched, watched, watched_environment
from playwright.async_api import Browser, Page, expect

GUARD_MS = 60_000
DESK = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
#: The least contrast of text that WCAG 2.2 asks for at level AA.
CONTRAST_MIN = 4.5

_CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (color) => {
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
    return "white";
  };
  const texts = [...document.querySelectorAll("body *")].filter((node) => node.offsetParent &&
    [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim()));
  return texts.map((node) => {
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort((x, y) => y - x);
    return [node.textContent.slice(0, 40), (a + 0.05) / (b + 0.05)];
  });
}"""
_UNNAMED = """() => [
  ...[...document.querySelectorAll("section")].filter((s) => !s.ariaLabelledByElements?.length),
  ...[...document.querySelectorAll("table")].filter((t) => !t.caption),
  ...[...document.querySelectorAll("th")].filter((th) => !th.scope),
  ...[...document.querySelectorAll("svg")].filter((svg) => !svg.closest("[aria-hidden]")),
].map((node) => node.outerHTML.slice(0, 80))"""


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    try:
        async with browser() as started:
            yield started
    except BrowserMissingError as missing:
        pytest.skip(f"no browser to test with: {missing}")


@pytest.fixture
async def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    watched_environment(monkeypatch)
    async with watched(tmp_path) as running:
        yield running


@asynccontextmanager
async def opened(chromium: Browser, url: str, **options: Any) -> AsyncIterator[Page]:
    """The page with its first reading on it. What the browser complains of fails the test."""
    complaints: list[str] = []
    context = await chromium.new_context(**options)
    page = await context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto(url)
    await expect(page.locator("#state")).to_contain_text("requests answered", timeout=GUARD_MS)
    yield page
    assert complaints == []
    await context.close()


async def cells(page: Page, section: str) -> dict[str, list[str]]:
    """The rows of a section's table by their head."""
    rows = await page.locator(f"#{section} tbody tr").all()
    texts = [await row.locator("th, td").all_inner_texts() for row in rows]
    return {head: rest for head, *rest in texts}


async def test_the_page_shows_what_the_pipeline_does(chromium: Browser, stack: Watched) -> None:
    await stack.drive()
    async with opened(chromium, stack.url, viewport=DESK) as page:
        latency = await cells(page, "latency")
        assert {"repair", "cpu"} <= latency.keys()
        for path in ("repair", "cpu"):
            count, *quantiles = latency[path][:4]
            assert int(count) > 0
            assert all(re.fullmatch(r"[\d.]+ (µs|ms|s)", quantile) for quantile in quantiles), quantiles
        routes = await cells(page, "routes")
        assert {"repair, A (native)", "repair, C (reference)", "cpu, D (reference)"} <= routes.keys()
        assert all(share.endswith("%") for _, share, _ in routes.values())
        reasons = await cells(page, "reasons")
        assert "cpu: no_rule" in reasons
        assert "tokenize.requests" in await cells(page, "queues")
        assert "hit rate" in await page.locator("#sessions").inner_text()
        assert "mismatches" in await page.locator("#shadow").inner_text()
        alerts = await page.locator("#alerts").inner_text()
        assert "TokSpliceDeadLetters (firing, warning)" in alerts
        assert "topic tokenize.requests, code malformed" in alerts
        # It goes on by itself.
        before = await page.locator("#state").inner_text()
        await stack.drive()
        answered = before.split(",")[1]
        await expect(page.locator("#state")).not_to_contain_text(f",{answered},", timeout=GUARD_MS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
async def test_the_page_can_be_read(chromium: Browser, stack: Watched, scheme: str, viewport: dict[str, int]) -> None:
    await stack.drive()
    async with opened(chromium, stack.url, viewport=viewport, color_scheme=scheme) as page:
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= viewport["width"], "it has to be scrolled sideways"
        sections = await page.locator("section").all()
        assert [await section.evaluate("(s) => s.scrollWidth - s.clientWidth") for section in sections] == [0] * 7
        contrasts = await page.evaluate(_CONTRASTS)
        assert len(contrasts) > 30
        assert [(text, ratio) for text, ratio in contrasts if ratio < CONTRAST_MIN] == []
        assert await page.evaluate(_UNNAMED) == []
        dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert dark == ("rgb(22, 23, 26)" if scheme == "dark" else "rgb(253, 253, 252)")
        assert await page.locator("html").get_attribute("lang") == "en"
        assert await page.locator("h1").count() == 1
        assert await page.locator("[role=status]").count() == 1


async def test_the_page_says_when_nobody_answers(chromium: Browser, stack: Watched) -> None:
    async with opened(chromium, stack.url) as page:
        await page.route("**/live.json", lambda route: route.fulfill(status=200, body="no JSON"))
        await expect(page.locator("#state")).to_contain_text("what is shown is old", timeout=GUARD_MS)
        await page.unroute("**/live.json")
        await expect(page.locator("#state")).to_contain_text("requests answered", timeout=GUARD_MS)


async def test_words_on_the_page_are_never_markup(chromium: Browser, stack: Watched) -> None:
    """A tokenizer's registered name is the operator's, and may still be anything."""
    stack.telemetries[0].breaker_open.set(1, {"tokenizer": "<img src=x onerror=alert(1)>"})
    async with opened(chromium, stack.url) as page:
        assert "<img src=x onerror=alert(1)>" in await page.locator("#shadow").inner_text()
        assert await page.locator("img").count() == 0


async def test_a_strangers_page_reads_nothing(chromium: Browser, stack: Watched) -> None:
    async with opened(chromium, stack.url) as page:
        other = await page.context.new_page()
        await other.route("http://evil.example/", lambda route: route.fulfill(status=200, body="<p>"))
        await other.goto("http://evil.example/")
        read = f"fetch('{stack.url}live.json').then((a) => a.text()).catch((error) => error.name)"
        assert await other.evaluate(read) == "TypeError"
        await other.evaluate(
            f"""new Promise((done) => {{
              const frame = document.createElement("iframe");
              frame.onload = done;
              frame.src = "{stack.url}";
              document.body.append(frame);
            }})"""
        )
        assert [frame.url.partition(":")[0] for frame in other.frames] == ["http", "chrome-error"]
