"""Conversations kept in the browser: over a refresh, in the list, as files, and gone."""

import base64
import json
import urllib.request

from tests.page.reader import LONG, answer, ask, choose, expect, expect_phase, file, health, picture, text_of


def kept(page) -> int:
    return page.evaluate("import('./static/archive.js').then(({ list }) => list()).then((all) => all.length)")


def open_history(page):
    page.click("#history-open")
    expect(page.locator("#history")).to_be_visible()


def test_a_refresh_in_mid_answer_goes_on_with_it(page, server):
    choose(page, file(picture()))
    ask(page, LONG)
    expect_phase(page, "writing")
    page.reload()
    expect_phase(page, "done")
    whole = text_of(page)
    assert whole.startswith("[") and whole.endswith(f"300x220] {LONG.strip()}")
    expect(page.locator(".question-pictures img")).to_be_visible()
    expect(page.locator("#tray .thumb")).to_have_count(1)
    ask(page, "And then?")
    expect_phase(page, "done", 2)
    assert text_of(page, 2).endswith("300x220] (2 earlier) And then?")


def test_a_refresh_while_the_picture_is_read_does_not_ask_twice(page, server):
    choose(page, file(picture()))
    ask(page, "hang")
    expect_phase(page, "waiting")
    expect(answer(page).locator(".stage")).to_contain_text("Reading the picture")
    page.reload()
    expect_phase(page, "waiting")
    assert health(server)["queue"] == {**health(server)["queue"], "waiting": 0, "running": 1}
    page.keyboard.press("Escape")
    expect_phase(page, "done")


def test_a_refresh_before_the_question_is_sent_asks_it(page):
    page.route("**/images", lambda route: None)  # the picture does not get through
    choose(page, file(picture()))
    ask(page, "Early")
    expect_phase(page, "sending")
    page.wait_for_function("import('./static/archive.js').then(({ list }) => list()).then((all) => all.length)")
    page.unroute("**/images")
    page.reload()
    expect_phase(page, "done")
    assert text_of(page).endswith("300x220] Early")


def test_conversations_are_found_opened_and_continued(page, server):
    with page.expect_response("**/images") as reply:
        choose(page, file(picture()))
    ask(page, "What does the **heron** eat?")
    expect_phase(page, "done")
    page.click("#new")
    expect(page.locator(".turn")).to_have_count(0)
    ask(page, "Something about otters")
    expect_phase(page, "done")
    open_history(page)
    expect(page.locator(".history-title")).to_have_text(["Something about otters", "What does the **heron** eat?"])
    page.fill("#history-search", "HERON eat")
    expect(page.locator(".history-entry")).to_have_count(1)
    expect(page.locator(".history-picture img")).to_be_visible()
    page.click(".history-show")
    expect(page.locator("#history")).to_be_hidden()
    expect(page.locator(".question-text")).to_have_text("What does the **heron** eat?")
    expect(answer(page).locator(".answer-text strong")).to_have_text("heron")
    forgotten = f"{server}/images/{reply.value.json()['id']}"
    urllib.request.urlopen(urllib.request.Request(forgotten, method="DELETE")).close()
    ask(page, "And drink?")
    expect_phase(page, "done", 2)
    assert text_of(page, 2).endswith("300x220] (2 earlier) And drink?")
    assert kept(page) == 2


def test_conversations_are_saved_as_files(page):
    choose(page, file(picture()))
    ask(page, "What is it?")
    expect_phase(page, "done")
    open_history(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as Markdown").click()
    assert download.value.suggested_filename.endswith("What is it.md")
    markdown = download.value.path().read_text("utf-8")
    assert markdown.startswith("# What is it?") and "300x220] What is it?" in markdown and "*circle.png*" in markdown
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as JSON").click()
    saved = json.loads(download.value.path().read_text("utf-8"))
    assert saved["turns"][0]["question"] == "What is it?" and saved["turns"][0]["finish_reason"] == "stop"
    kind, data = saved["pictures"][0]["file"].split(",")
    assert kind == "data:image/png;base64" and base64.b64decode(data) == picture()


def test_a_deleted_conversation_is_gone_with_its_pictures(page):
    choose(page, file(picture()))
    ask(page, "What is it?")
    expect_phase(page, "done")
    open_history(page)
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Really delete?").click()
    expect(page.locator("#history-none")).to_have_text("Nothing here yet.")
    page.keyboard.press("Escape")
    expect(page.locator(".turn")).to_have_count(0)
    page.reload()
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator(".turn")).to_have_count(0)
    left = """new Promise((resolve) => {
        indexedDB.open('qwenvl').onsuccess = ({ target }) => {
            const stores = ['conversations', 'pictures'];
            const look = target.result.transaction(stores);
            Promise.all(stores.map((name) => new Promise((count) => {
                look.objectStore(name).count().onsuccess = (event) => count(event.target.result);
            }))).then(resolve);
        };
    })"""
    assert page.evaluate(left) == [0, 0]
