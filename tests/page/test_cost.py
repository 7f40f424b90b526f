"""What a picture costs: said before the question is asked, and learned from answers."""

import io
import json
import random

import pytest
from PIL import Image

from tests.page.reader import ask, choose, expect, expect_phase, file, free_port, picture, serving


def test_size_and_tokens_are_said_before_and_follow_the_detail(page):
    choose(page, file(picture(1600, 1200)))
    facts = page.locator("#tray-facts")
    expect(facts).to_have_text("1600 × 1200, read as 1024 × 768 · about 768 tokens")
    page.select_option("#detail", "fine")
    expect(facts).to_have_text("1600 × 1200, read as 1448 × 1086 · about 1,530 tokens")
    choose(page, file(picture(320, 320)))
    expect(facts).to_have_text("2 pictures · about 1,630 tokens")
    page.click(".thumb-remove >> nth=0")
    expect(facts).to_have_text("320 × 320 · about 100 tokens")


def test_the_wait_is_learned_and_kept(page):
    choose(page, file(picture(1024, 768)))
    expect(page.locator("#tray-facts")).not_to_contain_text("to read")
    # As if an answer had taken 15.36 s for such a picture; the fake engine is faster.
    page.evaluate(
        """import('./static/pace.js').then(({ learn }) => learn({
            detail: 'balanced',
            result: { images: [{ tokens: 768, cached: false }], timings: { encode_s: 10, prefill_s: 5.36 } },
        }))"""
    )
    expect(page.locator("#tray-facts")).to_have_text("1024 × 768 · about 768 tokens · about 15 s to read")
    expect(page.locator("#detail option[value=fast]")).to_have_text("Fast · about 6 s")
    ask(page, "What is it?")
    expect_phase(page, "done")
    expect(page.locator("#tray-facts")).to_have_text("1024 × 768 · 64 tokens · already read")
    expect(page.locator("#detail option[value=balanced]")).to_have_text("Balanced")
    page.reload()
    choose(page, file(picture(1024, 700)))
    expect(page.locator("#detail option[value=balanced]")).to_have_text("Balanced · about 14 s")


def test_a_cached_picture_teaches_nothing(page):
    page.evaluate(
        """import('./static/pace.js').then(({ learn }) => learn({
            detail: 'balanced',
            result: { images: [{ tokens: 768, cached: true }], timings: { encode_s: 0.1, prefill_s: 0.1 } },
        }))"""
    )
    choose(page, file(picture()))
    expect(page.locator("#detail option[value=balanced]")).to_have_text("Balanced")


def test_the_wait_that_is_shown_comes_from_answers_of_this_server(open_page):
    """The demo model reads a picture, and what it took is what is said of the next ones."""

    def noise(seed: int) -> dict:
        data = io.BytesIO()
        pixels = random.Random(seed).randbytes(96 * 72 * 3)
        Image.frombytes("RGB", (96, 72), pixels).resize((1024, 768), Image.NEAREST).save(data, "PNG")
        return file(data.getvalue(), f"{seed}.png")

    with serving("app:create_app()", free_port(), QWENVL_MODEL="demo", QWENVL_THREADS="1") as url:
        page = open_page(url)
        choose(page, noise(1))
        # the demo model reads no more than 40,960 pixels of a picture
        expect(page.locator("#tray-facts")).to_have_text("1024 × 768, read as 224 × 160 · about 35 tokens")
        ask(page, "What is it?")
        expect_phase(page, "done")
        state = "import('./static/state.js').then(({ state }) => JSON.stringify([state.turns[0].result, state.pace]))"
        result, pace = json.loads(page.evaluate(state))
        took = result["timings"]["encode_s"] + result["timings"]["prefill_s"]
        rate = took / result["images"][0]["tokens"]
        assert took > 0 and pace["rates"] == {"balanced": pytest.approx(rate)}
        page.click("#new")
        choose(page, *(noise(seed) for seed in range(2, 9)))
        assert result["images"][0]["tokens"] == 35
        wait = rate * 35 * 7
        said = f"{max(1, round(wait))} s" if round(wait) < 90 else f"{round(wait) // 60} min {round(wait) % 60} s"
        expect(page.locator("#tray-facts")).to_have_text(f"7 pictures · about 245 tokens · about {said} to read")
        expect(page.locator("#detail option[value=balanced]")).to_have_text(f"Balanced · about {said}")
