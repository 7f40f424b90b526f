"""Asking, stopping, failing, and the connection in between."""

import time

from tests.page.reader import (
    FAKE,
    LONG,
    answer,
    ask,
    choose,
    expect,
    expect_phase,
    file,
    free_port,
    health,
    picture,
    serving,
    text_of,
    wait_until_free,
)


def test_escape_stops_and_leaves_the_engine_idle(page, server):
    choose(page, file(picture()))
    ask(page, "forever and ever")
    expect_phase(page, "writing")
    page.keyboard.press("Escape")
    expect_phase(page, "done")
    expect(answer(page).locator(".why")).to_contain_text("You stopped this answer.")
    expect(page.locator("#send")).to_be_visible()
    give_up_at = time.monotonic() + 5
    while health(server)["queue"]["running"]:
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    ask(page, "The next one")
    expect_phase(page, "done", 2)


def test_the_stop_button_works_while_the_picture_is_being_read(page):
    choose(page, file(picture()))
    ask(page, "hang")
    expect_phase(page, "waiting")
    expect(answer(page).locator(".progress")).to_be_visible()
    page.click("#stop")
    expect_phase(page, "done")


def test_enter_sends_but_never_for_an_input_method(page):
    page.fill("#question", "ni hao")
    for options in ({"isComposing": True}, {"keyCode": 229}):
        page.dispatch_event("#question", "keydown", {"key": "Enter", **options})
    page.press("#question", "Shift+Enter")
    expect(page.locator("#question")).to_have_value("ni hao\n")
    expect(page.locator(".turn")).to_have_count(0)
    page.press("#question", "Enter")
    expect(page.locator(".question-text")).to_have_text("ni hao")


def test_a_failure_is_one_line_and_can_be_tried_again(page):
    ask(page, "fail")
    expect_phase(page, "failed")
    expect(answer(page).locator(".error")).to_contain_text("Server error. The fake failed")
    answer(page).get_by_role("button", name="Try again").click()
    wait_until_free(page)
    expect_phase(page, "failed")
    ask(page, "refuse")
    expect_phase(page, "failed", 2)
    answer(page, 2).get_by_role("button", name="New conversation").click()
    expect(page.locator(".turn")).to_have_count(0)


def test_an_answer_at_its_limit_offers_to_go_on(page):
    ask(page, "half an answer")
    expect_phase(page, "done")
    # The fake never reaches a limit, so the page is told that this answer did.
    page.evaluate(
        """import('./static/state.js').then(({ state, touch }) => {
            state.turns[0].reason = 'length';
            touch('turns');
        })"""
    )
    expect(answer(page).locator(".why")).to_contain_text("length limit")
    answer(page).get_by_role("button", name="Go on").click()
    expect(answer(page).locator(".why")).to_be_hidden()
    expect_phase(page, "done")
    assert text_of(page) == "half an answer(2 earlier) Go on exactly where you stopped."


def test_a_lost_connection_leaves_no_gap_and_no_repeat(page):
    choose(page, file(picture()))
    ask(page, LONG)
    expect_phase(page, "writing")
    page.context.set_offline(True)
    expect(page.locator("#banner[data-kind=lost], #banner[data-kind=gone]")).to_be_visible()
    page.context.set_offline(False)
    expect_phase(page, "done")
    assert text_of(page).endswith(f"300x220] {LONG.strip()}")
    expect(page.locator("#banner")).to_have_attribute("data-kind", "demo")


def test_a_restarted_server_is_asked_again_with_the_same_picture(open_page):
    port = free_port()
    with serving(FAKE, port) as url:
        page = open_page(url)
        choose(page, file(picture()))
        ask(page, "Before")
        expect_phase(page, "done")
    expect(page.locator("#banner")).to_have_attribute("data-kind", "gone")
    ask(page, "After")  # asked while nobody is there
    expect(answer(page, 2).locator(".stage")).to_have_text("Waiting for the connection")
    with serving(FAKE, port):
        expect_phase(page, "done", 2)
        assert text_of(page, 2).endswith("300x220] (2 earlier) After")
