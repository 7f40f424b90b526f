"""A conversation is left while it is being answered: the answer goes on and is there when the reader comes back."""

from tests.page.reader import (
    LONG,
    answer,
    ask,
    choose,
    expect,
    expect_phase,
    file,
    health,
    picture,
    text_of,
    wait_until_kept,
)

LONGER = LONG * 3  # about 5 s


def open_from_history(page, title: str):
    page.click("#history-open")
    page.locator(".history-show", has_text=title).click()
    expect(page.locator("#history")).to_be_hidden()
    expect(page.locator(".question-text").first).to_contain_text(title)


def test_an_answer_goes_on_in_a_conversation_that_was_left_and_can_be_watched_again(page):
    choose(page, file(picture()))
    ask(page, LONGER)
    expect_phase(page, "writing")
    page.click("#new")
    expect(page.locator(".turn")).to_have_count(0)
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator("#history-open")).to_have_attribute("data-running", "")
    page.click("#history-open")
    expect(page.locator(".history-facts")).to_contain_text("being answered")
    page.keyboard.press("Escape")
    open_from_history(page, "一二三四")
    expect_phase(page, "writing")
    early = text_of(page)
    expect(page.locator("#stop")).to_be_visible()
    expect(page.locator(".question-pictures img")).to_be_visible()
    expect_phase(page, "done")
    assert text_of(page).startswith(early) and text_of(page).endswith(f"300x220] {LONGER.strip()}")
    expect(page.locator("#history-open")).not_to_have_attribute("data-running", "")


def test_a_left_conversation_is_answered_while_another_asks_and_says_so(page):
    choose(page, file(picture()))
    ask(page, f"first {LONG}")
    expect_phase(page, "writing")
    page.click("#new")
    ask(page, "second")  # it waits in line behind the first
    expect_phase(page, "done")
    assert text_of(page) == "second"
    expect(page.locator("#notice")).to_contain_text("Answered: first")
    open_from_history(page, "first")
    expect_phase(page, "done")
    assert text_of(page).endswith(f"300x220] first {LONG.strip()}")
    ask(page, "And then?")
    expect_phase(page, "done", 2)
    assert text_of(page, 2).endswith("300x220] (2 earlier) And then?")


def test_a_refresh_elsewhere_does_not_lose_the_left_answer(page):
    ask(page, f"first {LONGER}")
    expect_phase(page, "writing")
    page.click("#new")
    ask(page, "second")
    wait_until_kept(page)
    page.reload()
    expect_phase(page, "done")
    assert text_of(page) == "second"
    open_from_history(page, "first")
    expect_phase(page, "done")
    assert text_of(page) == f"first {LONGER.strip()}"


def test_escape_stops_only_the_conversation_on_the_page_and_deleting_stops_its_own(page, server):
    ask(page, "forever one")
    expect_phase(page, "writing")
    page.click("#new")
    ask(page, "forever two")
    expect_phase(page, "waiting")
    page.keyboard.press("Escape")
    expect_phase(page, "done")
    assert health(server)["queue"]["running"] == 1
    page.click("#history-open")
    entry = page.locator(".history-entry", has_text="forever one")
    entry.get_by_role("button", name="Delete").click()
    entry.get_by_role("button", name="Really delete?").click()
    expect(page.locator(".history-entry")).to_have_count(1)
    page.keyboard.press("Escape")
    ask(page, "Is the engine free?")
    expect_phase(page, "done", 2)
    assert health(server)["queue"]["running"] == 0


def test_nothing_goes_on_where_nothing_is_kept(page, server):
    page.click("#options-open")
    page.uncheck("#keeping")
    page.keyboard.press("Escape")
    ask(page, "forever")
    expect_phase(page, "writing")
    page.click("#new")
    ask(page, "free?")
    expect_phase(page, "done")
    expect(answer(page)).to_contain_text("free?")
