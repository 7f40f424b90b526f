"""Settings, keys, and what axe-core has to say of every state of the page."""

from pathlib import Path

import axe_playwright_python
import pytest

from tests.page.reader import (
    answer,
    ask,
    choose,
    expect,
    expect_phase,
    file,
    picture,
    record_sent,
)
from tests.page.test_answers import REPORT

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def findings(page) -> list[str]:
    """What is serious or worse, by rule and element."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text("utf-8"))
    result = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{rule['id']}: {node['html'][:120]} {node['failureSummary'][:200]}"
        for rule in result["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", [{}, PHONE])
def test_no_state_of_the_page_has_serious_faults(open_page, server, scheme, device):
    page = open_page(server, color_scheme=scheme, reduced_motion="reduce", **device)
    assert not findings(page)
    choose(page, file(picture()))
    expect(page.locator("#presets")).to_be_visible()
    assert not findings(page)
    ask(page, REPORT)
    expect_phase(page, "done")
    assert not findings(page)
    ask(page, "forever")
    expect_phase(page, "writing", 2)
    assert not findings(page)
    page.keyboard.press("Escape")
    ask(page, "fail")
    expect_phase(page, "failed", 3)
    assert not findings(page)
    page.click("#history-open")
    expect(page.locator(".history-entry")).to_have_count(1)
    assert not findings(page)
    page.keyboard.press("Escape")
    page.click("#options-open")
    assert not findings(page)
    page.keyboard.press("Escape")
    page.evaluate(
        """import('./static/state.js').then(({ set }) => set({
            storage: 'full',
            health: { status: 'loading', stage: 'downloading x', fraction: 0.4, bytes_done: 4e8, bytes_total: 1e9,
                rate_bytes_s: 1e7, eta_s: 60 },
        }))"""
    )
    expect(page.locator("#storage")).to_be_visible()
    expect(page.locator("#banner-figures")).to_have_text("40% · 400 MB of 1.00 GB · 10 MB/s · about 60 s left")
    assert not findings(page)


def test_settings_go_with_the_question_and_are_kept(page):
    record_sent(page)
    page.click("#options-open")
    page.select_option("#limit", "1024")
    page.fill("#temperature", "0.3")
    expect(page.locator("#temperature-value")).to_have_text("0.3")
    page.keyboard.press("Escape")
    ask(page, "How long?")
    expect_phase(page, "done")
    sent = [text for text in page.evaluate("window.sent") if "ask_question" in text]
    assert len(sent) == 1 and '"max_new_tokens":1024' in sent[0] and '"temperature":0.3' in sent[0]
    page.reload()
    expect(page.locator("#limit")).to_have_value("1024")
    expect(page.locator("#temperature")).to_have_value("0.3")


def test_nothing_is_kept_when_the_reader_says_so(page):
    ask(page, "Keep this?")
    expect_phase(page, "done")
    page.click("#options-open")
    page.uncheck("#keeping")
    page.keyboard.press("Escape")
    page.click("#history-open")
    expect(page.locator("#history-none")).to_be_visible()
    page.reload()
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator(".turn")).to_have_count(0)


def test_slash_focuses_and_escape_in_a_dialog_does_not_stop_an_answer(page):
    ask(page, "forever")
    expect_phase(page, "writing")
    page.click("#options-open")
    page.keyboard.press("Escape")
    expect(page.locator("#options")).to_be_hidden()
    expect(answer(page)).to_have_attribute("data-phase", "writing")
    page.locator("#theme").focus()
    page.keyboard.press("/")
    expect(page.locator("#question")).to_be_focused()
    expect(page.locator("#question")).to_have_value("")
    page.keyboard.press("Escape")
    expect_phase(page, "done")
