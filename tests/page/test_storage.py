"""A browser without room: nothing is lost without a word, and the reader can make room."""

import io
import json
import os

import pytest
from PIL import Image

from tests.page.reader import answer, ask, choose, expect, expect_phase, file, text_of


def noisy(name: str, side: int = 316) -> dict:
    """A picture of 300 kB that does not get smaller."""
    data = io.BytesIO()
    Image.frombytes("RGB", (side, side), os.urandom(side * side * 3)).save(data, "PNG")
    return file(data.getvalue(), name)


@pytest.fixture
def page_with_room(open_page, server):
    """Opens a page in a browser that keeps so many bytes for it. Chromium looks at the limit before the first use."""

    def open_with(room: int):
        page = open_page(server, service_workers="block")  # the copy of the page would count
        cdp = page.context.new_cdp_session(page)
        cdp.send("Storage.overrideQuotaForOrigin", {"origin": server, "quotaSize": room})
        return page

    return open_with


def kept_pictures(page) -> int:
    return page.evaluate("import('./static/archive.js').then(({ usage }) => usage()).then(({ pictures }) => pictures)")


def ask_about(page, name: str, side: int = 316):
    choose(page, noisy(name, side))
    ask(page, f"What is {name}?")
    expect_phase(page, "done")


def test_full_storage_is_said_and_room_is_made_from_the_oldest(page_with_room):
    page = page_with_room(1_500_000)
    strip = page.locator("#storage")
    for number in range(1, 6):  # of 300 kB each
        ask_about(page, f"{number}.png")
        page.wait_for_timeout(1500)  # kept at most once a second
        if strip.is_visible():
            break
        page.click("#new")
    assert 1 < number < 6
    expect(strip).to_contain_text("This browser has no room left.")
    assert text_of(page).endswith(f"316x316] What is {number}.png?")
    page.get_by_role("button", name="Remove the oldest pictures").click()
    expect(page.locator("#notice")).to_contain_text("Pictures removed from older conversations: ")
    expect(strip).to_be_hidden()
    page.reload()
    expect(page.locator(".question-pictures img")).to_be_visible()
    expect(answer(page)).to_contain_text(f"What is {number}.png?")
    page.click("#history-open")
    page.get_by_role("button", name="What is 1.png?").click()
    expect(page.locator(".question-gone")).to_have_text("Pictures removed to make room in this browser: 1")
    expect(answer(page)).to_contain_text("What is 1.png?")


def test_where_nothing_can_be_removed_words_are_kept_and_the_whole_goes_into_a_file(page_with_room):
    page = page_with_room(400_000)
    ask_about(page, "large.png", 450)  # 600 kB
    expect(page.locator("#storage")).to_be_visible()
    page.get_by_role("button", name="Remove the oldest pictures").click()
    expect(page.locator("#notice")).to_contain_text("There are no older pictures to remove.")
    expect(page.locator("#storage")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as a file").click()
    saved = json.loads(download.value.path().read_text("utf-8"))
    assert saved["turns"][0]["answer"].endswith("450x450] What is large.png?")
    assert len(saved["pictures"][0]["file"]) > 790_000
    ask(page, "Still here?")
    expect_phase(page, "done", 2)
    assert text_of(page, 2).endswith("450x450] (2 earlier) Still here?")
    page.wait_for_timeout(2500)
    page.reload()
    expect(page.locator(".question-text").first).to_have_text("What is large.png?")
    expect(page.locator(".question-gone")).to_have_text("Pictures removed to make room in this browser: 1")


def test_settings_say_how_much_is_kept(page):
    ask_about(page, "one.png")
    page.wait_for_timeout(1200)
    page.click("#options-open")
    expect(page.locator("#kept-now")).to_contain_text("Conversations: 1 · pictures: 1 · 300 kB")
