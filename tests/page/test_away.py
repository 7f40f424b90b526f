"""The network or the server goes away: answers go on after it, and the page opens without it."""

import shutil
import time

import pytest

from tests.page.reader import (
    FAKE,
    LONG,
    ROOT,
    answer,
    ask,
    choose,
    expect,
    expect_phase,
    file,
    free_port,
    picture,
    serving,
    text_of,
)
from tests.page.wire import Wire

LONGER = LONG * 9  # about 14 s of pieces
AWAY_S = 10.0


@pytest.mark.parametrize("fault", ["cut", "silence"])
def test_ten_seconds_without_a_network_in_mid_answer_lose_nothing(open_page, fault):
    with serving("tests.fake_app:create_fast_app(resume_grace_s=30)", port := free_port()):
        wire = Wire(port)
        page = open_page(wire.url)
        choose(page, file(picture()))
        ask(page, LONGER)
        expect_phase(page, "writing")
        before = len(text_of(page))
        getattr(wire, fault)()
        if fault == "cut":
            expect(page.locator("#banner[data-kind=lost], #banner[data-kind=gone]")).to_be_visible()
        page.wait_for_timeout(AWAY_S * 1000)
        expect_phase(page, "writing")
        assert len(text_of(page)) < before + 400  # it stood still meanwhile
        wire.mend()
        expect_phase(page, "done")
        shown = page.evaluate("import('./static/state.js').then(({ state }) => state.turns[0].text)")
        assert shown.startswith("[") and shown.endswith(f" 300x220] {LONGER.strip()}")
        assert shown.count("[") == 1
        expect(page.locator("#banner")).to_have_attribute("data-kind", "demo")
        wire.close()


def is_copied(page):
    """Wait until the page could be opened without a server."""
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")


def test_without_a_server_the_page_opens_with_its_conversations(open_page):
    port = free_port()
    with serving(FAKE, port) as url:
        page = open_page(url)
        is_copied(page)
        choose(page, file(picture()))
        ask(page, "About **herons**")
        expect_phase(page, "done")
        page.click("#new")
        ask(page, "About $x^2$ otters")
        expect_phase(page, "done")
    page.reload()
    expect(page.locator("#banner")).to_contain_text("The server cannot be reached.")
    expect(page.locator(".question-text")).to_have_text("About $x^2$ otters")
    expect(answer(page).locator("math")).to_have_count(1)
    page.click("#history-open")
    page.get_by_role("button", name="About **herons**").click()
    expect(answer(page).locator(".answer-text strong")).to_have_text("herons")
    expect(page.locator(".question-pictures img")).to_be_visible()
    other = page.context.new_page()  # a new tab as well
    other.goto(url)
    expect(other.locator("#banner")).to_contain_text("The server cannot be reached.")
    other.close()
    with serving(FAKE, port):
        ask(page, "Are you there?")
        expect_phase(page, "done", 2)
        assert text_of(page, 2).endswith("300x220] (2 earlier) Are you there?")


@pytest.fixture
def tree(tmp_path):
    """A copy of what a server with the fake engine needs, to be changed."""
    for name in ("qwenvl", "static", "templates", "tests"):
        ignored = shutil.ignore_patterns("demo", "_build", "__pycache__", "cmaps")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    return tmp_path


def test_an_updated_server_shows_its_new_page_at_once_and_later_without_it(open_page, tree):
    port = free_port()
    with serving(FAKE, port, root=tree) as url:
        page = open_page(url)
        is_copied(page)
        first = page.evaluate("caches.keys()")
        expect(page.get_by_role("heading", name="Ask about a picture")).to_be_visible()
    words = tree / "static" / "words-en.js"
    words.write_text(words.read_text("utf-8").replace("'Ask about a picture'", "'Ask what you like'"), "utf-8")
    page.reload()
    expect(page.get_by_role("heading", name="Ask about a picture")).to_be_visible()  # the copy
    with serving(FAKE, port, root=tree):
        page.reload()
        expect(page.get_by_role("heading", name="Ask what you like")).to_be_visible()
        deadline = time.monotonic() + 20
        while (copies := page.evaluate("caches.keys()")) == first or len(copies) != 1:
            assert time.monotonic() < deadline, copies
            page.wait_for_timeout(100)
    page.reload()
    expect(page.get_by_role("heading", name="Ask what you like")).to_be_visible()
    expect(page.locator("#banner")).to_have_attribute("data-kind", "gone")
