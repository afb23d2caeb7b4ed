"""A headless Chromium for tests: the one that is installed, driven by Playwright, which downloads none."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from playwright.async_api import Browser, async_playwright

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


class BrowserMissingError(Exception):
    """There is no browser to run; tests are skipped with the message."""


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A browser while the block lasts. Raises BrowserMissingError."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise BrowserMissingError(f"no {', '.join(NAMES)} on the PATH (Debian: chromium)")
    # Chromium's sandbox does not start as root, as tests in containers often run; the pages are our own.
    sandbox = os.geteuid() != 0
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=found, chromium_sandbox=sandbox)
        try:
            yield started
        finally:
            await started.close()
