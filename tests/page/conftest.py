"""A server with the fake engine, a browser, and pages in it that must not see a script error."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from playwright.sync_api import sync_playwright

    from tests.page.reader import FAKE, PATIENCE_MS, STATIC, expect, free_port, serving

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
)  # fmt: skip


@pytest.fixture(scope="package")
def server():
    if not (STATIC / "vendor" / "socket.io.esm.min.js").exists():
        pytest.skip("the page's scripts are not fetched yet; `make test` does that")
    with serving(FAKE, free_port()) as url:
        yield url


@pytest.fixture(scope="package")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        if not found and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("there is no Chromium on this machine")
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens pages; in the end none of them may have seen a script error or a breach of the security policy."""
    contexts, faults = [], []

    def open_one(url, status="ready", **options):
        context = browser.new_context(**{"locale": "en-US", "viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
        page.on("console", lambda line: "Content Security" in line.text and faults.append(line.text))
        page.goto(url)
        expect(page.locator("#model")).to_have_attribute("data-status", status)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture
def page(open_page, server):
    return open_page(server)
