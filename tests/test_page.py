"""The page in a real browser, against the fake engine in another process: what readers do, and what goes wrong.

The last test asks the bundled demo model itself.
"""

import base64
import contextlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

playwright_api = pytest.importorskip("playwright.sync_api")
expect = playwright_api.expect

ROOT = Path(__file__).parent.parent
STATIC = ROOT / "static"
BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
)  # fmt: skip
FAKE = "tests.fake_app:create_fast_app(resume_grace_s=10)"
PATIENCE_MS = 30_000  # only a failing test waits that long
expect.set_options(timeout=PATIENCE_MS)
LONG = "一二三四 five six seven eight 👨‍👩‍👧 " * 12  # about 1.6 s of pieces


# --- servers and browser


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def health(url: str) -> dict:
    with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:
        return json.load(reply)


@contextlib.contextmanager
def serving(app: str, port: int, patience_s: float = 180, **environ):
    """A server process; yields its address once it is ready."""
    command = [sys.executable, "-m", "gunicorn", "-k", "gevent", "-w", "1", "--bind", f"127.0.0.1:{port}"]
    command += ["--graceful-timeout", "1", "--log-level", "warning", "--no-control-socket", app]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environ})
    url = f"http://127.0.0.1:{port}"
    give_up_at = time.monotonic() + patience_s
    try:
        while True:
            try:
                if health(url)["status"] == "ready":
                    break
            except OSError:
                assert process.poll() is None and time.monotonic() < give_up_at, "the server did not start"
                time.sleep(0.1)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def server():
    if not (STATIC / "vendor" / "socket.io.esm.min.js").exists():
        pytest.skip("the page's scripts are not fetched yet; `make test` does that")
    with serving(FAKE, free_port()) as url:
        yield url


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    with playwright_api.sync_playwright() as playwright:
        if not found and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("there is no Chromium on this machine")
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens pages; in the end none of them may have seen a script error or a breach of the security policy."""
    contexts, faults = [], []

    def open_one(url, **options):
        context = browser.new_context(**{"locale": "en-US", "viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
        page.on("console", lambda line: "Content Security" in line.text and faults.append(line.text))
        page.goto(url)
        expect(page.locator("#model")).to_have_attribute("data-status", "ready")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture
def page(open_page, server):
    return open_page(server)


# --- what a reader does


def picture(width=300, height=220, kind="PNG", **options) -> bytes:
    """A white picture with a red circle, and a red band at the top."""
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, width, height // 10), fill="red")
    draw.ellipse((width // 4, height // 4, width // 2, height // 4 + width // 4), fill="red")
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def file(data: bytes, name="circle.png", kind="image/png") -> dict:
    return {"name": name, "mimeType": kind, "buffer": data}


def choose(page, *files):
    page.set_input_files("#files", list(files))


def ask(page, question: str):
    page.fill("#question", question)
    page.press("#question", "Enter")


def answer(page, number=1):
    return page.locator(f".turn:nth-child({number}) .answer")


def expect_phase(page, phase: str, number=1):
    expect(answer(page, number)).to_have_attribute("data-phase", phase)


def text_of(page, number=1) -> str:
    return answer(page, number).locator(".answer-text").text_content()


def hand_over(page, event: str, data: bytes, name="circle.png"):
    """Drop or paste a file as the browser would: `event` with the file in its DataTransfer."""
    page.evaluate(
        """([event, base64, name]) => {
            const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], name, { type: 'image/png' }));
            const options = { bubbles: true, cancelable: true };
            if (event === 'paste') {
                document.body.dispatchEvent(new ClipboardEvent('paste', { ...options, clipboardData: transfer }));
                return;
            }
            for (const step of ['dragenter', 'dragover', 'drop']) {
                document.body.dispatchEvent(new DragEvent(step, { ...options, dataTransfer: transfer }));
            }
        }""",
        [event, base64.b64encode(data).decode(), name],
    )


# --- pictures


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


# --- asking


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


def test_markup_is_shown_as_text(page):
    evil = "<img src=x onerror=alert(1)> [a](javascript:alert(1))"
    ask(page, evil)
    expect_phase(page, "done")
    assert text_of(page) == evil
    expect(page.locator(".question-text")).to_have_text(evil)
    expect(page.locator(".answer-text *")).to_have_count(0)


def test_a_failure_is_one_line_and_can_be_tried_again(page):
    ask(page, "fail")
    expect_phase(page, "failed")
    expect(answer(page).locator(".error")).to_contain_text("Server error. The fake failed")
    answer(page).get_by_role("button", name="Try again").click()
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


def test_an_answer_can_be_copied(open_page, server):
    page = open_page(server, permissions=["clipboard-read", "clipboard-write"])
    ask(page, "copy me")
    expect_phase(page, "done")
    page.get_by_role("button", name="Copy answer").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "copy me"


# --- the connection


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


# --- comfort


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
    page.reload()
    expect(page.get_by_role("heading", name="Ask about a picture")).to_be_visible()


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


# --- the real thing


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
