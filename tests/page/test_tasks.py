"""The ready-made questions."""

import re

import pytest

from tests.page.reader import STATIC, answer, ask, choose, expect, expect_phase, file, picture, text_of

TASKS = ("describe", "read", "table", "invoice", "check")


@pytest.mark.parametrize(("locale", "words"), [("en-US", "Begin with Yes or No"), ("zh-CN", "先回答“有”或“没有”")])
def test_every_task_asks_in_the_readers_language(open_page, server, locale, words):
    page = open_page(server, locale=locale)
    choose(page, file(picture()))
    for number, task in enumerate(TASKS, 1):
        page.click(f"[data-preset={task}]")
        expect_phase(page, "done", number)
    assert words in text_of(page, len(TASKS))
    expect(page.locator(".note:visible")).to_have_count(1)
    expect(answer(page, len(TASKS)).locator(".note")).to_contain_text(re.compile("steer the model|诱导模型"))


def test_tasks_leave_when_words_are_written(page):
    expect(page.locator("#presets")).to_be_hidden()
    choose(page, file(picture()))
    expect(page.locator("#presets")).to_be_visible()
    page.fill("#question", "My own")
    expect(page.locator("#presets")).to_be_hidden()
    ask(page, "My own")
    expect_phase(page, "done")
    expect(page.locator("#presets")).to_be_visible()


def test_every_task_has_its_words():
    for language in ("en", "zh"):
        words = (STATIC / f"words-{language}.js").read_text("utf-8")
        assert all(f"'preset.{task}'" in words and f"'preset.{task}.ask'" in words for task in TASKS)
