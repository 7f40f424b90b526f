"""What the page says while the model is on its way."""

import re

from tests.fake_hub import FakeHub
from tests.page.reader import answer, ask, choose, expect, expect_phase, file, free_port, picture, serving


def test_a_download_shows_bytes_rate_and_time_and_then_answers(open_page, tmp_path):
    hub = FakeHub(rate_bytes_s=1.5e6)
    environ = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.url, "QWENVL_MODEL": "auto"}
    with serving("app:create_app()", free_port(), status="loading", **environ) as url:
        page = open_page(url, status="loading")
        banner = page.locator("#banner")
        expect(banner).to_have_attribute("data-kind", "loading")
        expect(banner).to_contain_text("The model is being downloaded.")
        figures = r"^\d+% · \d\.\d MB of 7\.\d MB · [01]\.\d MB/s · about \d s left$"
        expect(page.locator("#banner-figures")).to_have_text(re.compile(figures))
        early = page.locator("#banner-bar").get_attribute("aria-valuenow")
        expect(page.locator("#banner-bar")).not_to_have_attribute("aria-valuenow", early)
        choose(page, file(picture(256, 256)))
        ask(page, "What color is the circle?")  # asked before there is a model
        expect(answer(page).locator(".stage")).to_have_text("Waiting for the model to load")
        expect(answer(page).locator(".aside")).to_have_text(re.compile(r"about \d s left|\d s"))
        expect_phase(page, "done")
        expect(banner).to_be_hidden()
    hub.close()


def test_a_start_that_failed_says_why(open_page, tmp_path):
    hub = FakeHub()
    hub.refuses = True
    environ = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.url, "QWENVL_MODEL": "auto"}
    with serving("app:create_app()", free_port(), status="failed", **environ) as url:
        page = open_page(url, status="failed", locale="zh-CN")
        expect(page.locator("#banner")).to_have_attribute("data-kind", "failed")
        expect(page.locator("#banner")).to_contain_text("模型加载失败。")
        expect(page.locator("#banner")).to_contain_text("HF_TOKEN")
    hub.close()
