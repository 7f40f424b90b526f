"""PDF files: their pages become pictures."""

import io

from PIL import Image

from tests.page.reader import ask, choose, expect, expect_phase, file, text_of


def pdf(*colours: str) -> dict:
    """A PDF with a page of each colour."""
    pages = [Image.new("RGB", (200, 300), colour) for colour in colours]
    data = io.BytesIO()
    pages[0].save(data, "PDF", save_all=True, append_images=pages[1:])
    return file(data.getvalue(), "report.pdf", "application/pdf")


def test_the_only_page_becomes_a_picture(page):
    choose(page, pdf("red"))
    expect(page.locator("#tray .thumb-open")).to_have_attribute("aria-label", "Enlarge report.png")
    ask(page, "What colour?")
    expect_phase(page, "done")
    assert "683x1024] What colour?" in text_of(page)


def test_of_several_pages_the_reader_chooses(page):
    choose(page, pdf("red", "green", "blue"))
    expect(page.locator("#pdf")).to_be_visible()
    expect(page.locator("#pdf-pages img:visible")).to_have_count(3)
    page.locator("#pdf-pages input").nth(1).check()
    page.locator("#pdf-pages input").nth(2).check()
    expect(page.locator("#pdf-note")).to_have_text("There is room for 2.")
    expect(page.locator("#pdf-add")).to_be_disabled()
    page.locator("#pdf-pages input").nth(0).uncheck()
    page.click("#pdf-add")
    expect(page.locator("#tray .thumb")).to_have_count(2)
    expect(page.locator("#tray .thumb-open").last).to_have_attribute("aria-label", "Enlarge report 3.png")


def test_closing_the_choice_adds_nothing_and_a_broken_file_is_explained(page):
    choose(page, pdf("red", "green"))
    expect(page.locator("#pdf")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#pdf")).to_be_hidden()
    expect(page.locator("#tray")).to_be_hidden()
    choose(page, file(b"%PDF-1.7 broken", "broken.pdf", "application/pdf"))
    expect(page.locator("#notice")).to_have_text("broken.pdf could not be opened. It is damaged or needs a password.")
