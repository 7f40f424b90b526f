"""What a picture costs: said before the question is asked, and learned from answers."""

from tests.page.reader import ask, choose, expect, expect_phase, file, picture


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
