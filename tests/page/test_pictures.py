"""Pictures on the page: ways in, previews, what goes wrong with them."""

import io
import re
import time
import urllib.request

from PIL import Image

from tests.page.reader import LONG, answer, ask, choose, expect, expect_phase, file, hand_over, picture, text_of


def test_a_dropped_picture_is_read_and_the_answer_grows(page):
    hand_over(page, "drop", picture())
    expect(page.locator("#tray .thumb img")).to_be_visible()
    ask(page, LONG)
    expect_phase(page, "writing")
    early = text_of(page)
    expect_phase(page, "done")
    whole = text_of(page)
    assert 0 < len(early) < len(whole) and whole.startswith(early)
    assert "300x220" in whole and whole.endswith(LONG.strip())
    expect(page.locator(".facts")).to_contain_text("first word after")


def test_a_pasted_picture_can_be_asked_about_twice(page):
    hand_over(page, "paste", picture())
    page.click("[data-preset=describe]")
    expect_phase(page, "done")
    assert "Describe this picture." in text_of(page)
    ask(page, "And then?")
    expect_phase(page, "done", 2)
    assert "(2 earlier) And then?" in text_of(page, 2)
    expect(answer(page, 2).locator(".badge")).to_have_text("Already read")


def test_two_chosen_pictures_go_shrunk_and_upright(page):
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its side
    lying = Image.open(io.BytesIO(picture(800, 1600))).rotate(90, expand=True)
    photo = io.BytesIO()
    lying.save(photo, "JPEG", exif=exif)
    choose(page, file(photo.getvalue(), "photo.jpg", "image/jpeg"), file(picture()))
    ask(page, "Which is larger?")
    expect_phase(page, "done")
    sizes = re.findall(r"\d+x\d+", text_of(page))
    assert sizes == ["512x1024", "300x220"]
    top = page.locator("#tray img").first.evaluate(
        """(image) => {
            const pen = new OffscreenCanvas(image.naturalWidth, image.naturalHeight).getContext('2d');
            pen.drawImage(image, 0, 0);
            return [...pen.getImageData(image.naturalWidth / 2, 10, 1, 1).data];
        }"""
    )
    assert top[0] > 230 and top[1] < 40 and top[2] < 40  # the red band is at the top of the preview, too


def test_finer_detail_sends_the_picture_again(page):
    choose(page, file(picture(2000, 1000)))
    expect(page.locator("#tray .thumb-ring")).to_be_hidden()
    page.select_option("#detail", "fine")
    ask(page, "How large?")
    expect_phase(page, "done")
    assert "1536x768" in text_of(page)


def test_a_file_that_is_no_picture_is_explained_and_can_be_removed(page):
    choose(page, file(b"<html>hello</html>", "<img src=x onerror=alert(1)>.png"))
    expect(page.locator("#tray-error")).to_contain_text("not a picture")
    expect(page.locator("#tray .thumb-name")).to_have_text("<img src=x onerror=alert(1)>.png")
    expect(page.locator("#send")).to_be_disabled()
    page.click(".thumb-remove")
    expect(page.locator("#tray")).to_be_hidden()
    ask(page, "No picture at all")
    expect_phase(page, "done")
    assert text_of(page) == "No picture at all"


def test_a_question_sent_too_early_for_a_faulty_picture_comes_back(page):
    page.route("**/images", lambda route: (time.sleep(0.3), route.continue_()))
    choose(page, file(b"not a picture", "notes.png"))
    ask(page, "What is it?")
    expect(page.locator("#tray-error")).to_be_visible()
    expect(page.locator("#question")).to_have_value("What is it?")
    expect(page.locator(".turn")).to_have_count(0)


def test_a_picture_opens_large_and_escape_closes_it(page):
    choose(page, file(picture(), "circle.png"))
    page.click("#tray .thumb-open")
    expect(page.locator("#zoom-image")).to_be_visible()
    expect(page.locator("#zoom figcaption")).to_contain_text("circle.png 300 × 220")
    page.keyboard.press("Escape")
    expect(page.locator("#zoom")).to_be_hidden()


def test_a_picture_that_the_server_forgot_is_sent_again(page, server):
    with page.expect_response("**/images") as reply:
        choose(page, file(picture()))
    forgotten = reply.value.json()["id"]
    urllib.request.urlopen(urllib.request.Request(f"{server}/images/{forgotten}", method="DELETE")).close()
    ask(page, "Still there?")
    expect_phase(page, "done")
    assert "300x220" in text_of(page)
