"""Languages, colours, phones, keys; what the page and the server must agree on; and the demo model itself."""

import io
import re

import pytest
from PIL import Image, ImageDraw

from tests.page.reader import (
    LONG,
    ROOT,
    STATIC,
    ask,
    choose,
    expect,
    expect_phase,
    file,
    free_port,
    hand_over,
    picture,
    serving,
    text_of,
)


def test_chinese_by_the_browsers_language_and_english_by_the_switch(open_page, server):
    page = open_page(server, locale="zh-CN")
    expect(page.get_by_role("heading", name="看图提问")).to_be_visible()
    expect(page.locator("#banner")).to_contain_text("演示模型")
    choose(page, file(picture()))
    page.click("#send")
    expect_phase(page, "done")
    assert text_of(page).endswith("请描述这张图片")
    page.click("#language")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    expect(page.locator("#banner")).to_contain_text("Demo model")
    page.reload()  # the conversation is there again, in the language that was chosen
    expect(page.get_by_role("button", name="New conversation")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "en")


def test_dark_by_preference_and_light_by_the_switch(open_page, server):
    page = open_page(server, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(23, 23, 26)"
    page.click("#theme")
    page.reload()
    assert page.evaluate(ground) == "rgb(250, 249, 246)"


def test_a_phone_has_everything_in_reach(open_page, server):
    page = open_page(server, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    expect(page.locator("#camera")).to_be_in_viewport()
    choose(page, file(picture()), file(picture(400, 300)))
    ask(page, LONG)
    expect(page.locator("#stop")).to_be_in_viewport()
    expect_phase(page, "done")
    expect(page.locator("#send")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_both_languages_say_the_same_things():
    words = [(STATIC / f"words-{language}.js").read_text("utf-8") for language in ("en", "zh")]
    keys = [re.findall(r"^  '([\w.]+)':", text, re.M) for text in words]
    assert keys[0] == keys[1] and len(set(keys[0])) == len(keys[0])
    used = set()
    for path in [*STATIC.glob("*.js"), ROOT / "templates" / "index.html"]:
        text = path.read_text("utf-8")
        used |= set(re.findall(r"""\bt\('([\w.]+)'""", text)) | set(re.findall(r'data-t(?:-\w+)?="([\w.]+)"', text))
    assert used and used <= set(keys[0])


def test_page_and_server_name_the_same_events():
    ours = (STATIC / "socket.js").read_text("utf-8") + (STATIC / "asking.js").read_text("utf-8")
    theirs = "".join(path.read_text("utf-8") for path in (ROOT / "qwenvl" / "web").glob("*.py"))
    for event in ("answer_progress", "answer_token", "answer_done", "answer_error"):
        assert f"'{event}'" in ours and f'"{event}"' in theirs
    for event in ("ask_question", "stop", "resume"):
        assert f"'{event}'" in ours and f'"{event}"' in theirs


def test_a_server_with_keys_asks_for_one_and_the_browser_keeps_it(browser):
    with serving("tests.fake_app:create_fast_app(api_keys='a-key-for-readers')", free_port()) as url:
        page = browser.new_context(locale="en-US").new_page()
        page.goto(url)
        expect(page.locator("#keyhole")).to_be_visible()
        expect(page.locator("#key-refused")).to_be_hidden()
        page.keyboard.press("Escape")
        expect(page.locator("#keyhole")).to_be_visible()
        choose(page, file(picture()))  # it waits for the key, as the reader does
        page.fill("#key", "a-wrong-key")
        page.click("#keyhole button")
        expect(page.locator("#key-refused")).to_have_text("The server does not accept this key.")
        page.fill("#key", "a-key-for-readers")
        page.press("#key", "Enter")
        expect(page.locator("#keyhole")).to_be_hidden()
        ask(page, "How large?")
        expect_phase(page, "done")
        assert "300x220" in text_of(page)
        page.reload()
        ask(page, "Once more")
        expect_phase(page, "done")
        expect(page.locator("#keyhole")).to_be_hidden()
        page.context.close()


@pytest.mark.skipif(not list((ROOT / "qwenvl" / "demo").glob("*.safetensors")), reason="the demo model is not here")
def test_the_demo_model_names_the_colour_in_both_languages(open_page):
    with serving("app:create_app()", free_port(), QWENVL_MODEL="demo") as url:
        page = open_page(url)
        circle = Image.new("RGB", (256, 256), "white")
        ImageDraw.Draw(circle).ellipse((64, 64, 192, 192), fill=(255, 0, 0))
        data = io.BytesIO()
        circle.save(data, "PNG")
        hand_over(page, "drop", data.getvalue())
        ask(page, "What color is the circle?")
        expect_phase(page, "done")
        assert "red" in text_of(page).lower()
        page.click("#new")
        hand_over(page, "drop", data.getvalue())
        ask(page, "圆是什么颜色？")
        expect_phase(page, "done")
        assert "红" in text_of(page)
