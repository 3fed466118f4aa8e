"""The page in headless Chromium: type, stream, switch, stop, reload; by keyboard, and on a phone's width."""

import json
import re
import shutil

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")
pytest.importorskip("playwright", reason="needs the extra `dev`")
if not (CHROMIUM := shutil.which("chromium") or shutil.which("google-chrome")):
    pytest.skip("needs a Chromium on the PATH", allow_module_level=True)

from fake_engine import SLOW, following, text_of
from playwright.sync_api import Browser, Page, expect, sync_playwright
from serving import Running, serving

PATIENCE_MS = 120_000  # for every wait: a busy machine may stand still for a minute
expect.set_options(timeout=PATIENCE_MS)
OPTIONS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync"


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS.split())
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def server():
    with serving(queue=8) as running:
        yield running


def opened(browser: Browser, address: str, width: int) -> tuple[Page, list[str]]:
    """The page, and the addresses of all it loads, with errors of its scripts among them."""
    page, loaded = browser.new_page(viewport={"width": width, "height": 900}), []
    page.set_default_timeout(PATIENCE_MS)
    page.on("console", lambda message: loaded.append(message.text))
    page.on("request", lambda request: loaded.append(request.url))
    page.on("pageerror", lambda error: loaded.append(f"error: {error}"))
    page.goto(address)
    expect(page.locator("#about")).to_have_text("fake on ptx, 256 positions")
    return page, loaded


def say(page: Page, text: str) -> None:
    page.locator("#say").fill(text)
    page.locator("#say").press("Enter")


def answer_to(*messages: str, count: int, shift: int = 0) -> str:
    return text_of(following([ord(one) % 500 for one in "".join(messages)], count, shift))


@pytest.mark.parametrize("width", [1280, 390])
def test_a_chat_by_keyboard_alone(browser, server: Running, width):
    page, loaded = opened(browser, server.address, width)
    answers = page.locator("#log .assistant .text")
    expect(page.locator("#say")).to_be_focused()
    page.keyboard.type("hi")
    page.keyboard.press("Enter")
    first = answer_to("hi", count=64)
    expect(answers.nth(0)).to_have_text(first, use_inner_text=False)
    expect(page.locator("#rate")).to_have_text("1000.0")
    expect(page.locator("#last")).to_contain_text("64 tokens after 2")

    page.locator("#variant").focus()
    page.keyboard.type("vec128")
    expect(page.locator("#idea")).to_contain_text("128")
    expect(page.locator("#knobs select")).to_have_value("default")
    page.locator("#say").focus()
    page.keyboard.type("and")
    page.keyboard.press("Enter")
    expect(answers.nth(1)).to_have_text(answer_to("hi", first, "and", count=64, shift=1), use_inner_text=False)
    expect(page.locator("#log .assistant .who").nth(1)).to_contain_text("vec128")

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the screen"
    assert {re.sub(r"(?<=\d)/.*", "", url) for url in loaded} == {server.address}, "nothing comes from elsewhere"
    page.close()


def test_stop_and_reload(browser, server: Running):
    page, _ = opened(browser, server.address, 1280)
    page.keyboard.type(f"long {chr(SLOW)}")
    before = server.engine.cancelled
    page.keyboard.press("Enter")
    text = page.locator("#log .assistant .text").first
    expect(text).not_to_be_empty()
    expect(page.locator("#send")).to_be_disabled()
    page.keyboard.press("Escape")
    expect(page.locator("#log .who").nth(1)).to_have_text("baseline · stopped")
    server.cancelled(before + 1)
    stopped = text.text_content()
    assert answer_to("long ", chr(SLOW), count=64).startswith(stopped)
    assert len(stopped) < 64

    page.reload()
    expect(text).to_have_text(stopped, use_inner_text=False)
    page.keyboard.type(f"again {chr(SLOW)}")
    page.keyboard.press("Enter")
    expect(page.locator("#log .assistant .text").nth(1)).not_to_be_empty()
    page.reload()  # leaves the answer
    server.cancelled(before + 2)
    expect(page.locator("#log .who").nth(3)).to_have_text("baseline · interrupted")
    page.locator("#clear").click()
    expect(page.locator("#log li")).to_have_count(0)
    page.keyboard.type("hi")
    page.locator("#tokens").fill("3")
    page.locator("#tokens").press("Tab")
    page.locator("#send").click()
    expect(text).to_have_text(answer_to("hi", count=3), use_inner_text=False)
    page.close()


def test_an_error_is_said_and_a_key_is_asked_for(browser):
    with serving(api_key="secret") as server:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(server.address)
        expect(page.locator("#about")).to_contain_text("API key is missing")
        page.locator("#key").fill("secret")
        page.locator("#key").press("Enter")
        expect(page.locator("#unlock")).to_be_hidden()
        page.locator("#tokens").fill("1000")
        page.locator("#say").fill("<b>hi</b>")
        page.locator("#say").press("Enter")
        expect(page.locator("#error")).to_contain_text("ask for at most 248")
        expect(page.locator("#log li")).to_have_count(0)
        expect(page.locator("#say")).to_have_value("<b>hi</b>")
        page.locator("#tokens").fill("3")
        page.locator("#send").click()
        expect(page.locator("#log .assistant .text")).to_have_text(
            answer_to("<b>hi</b>", count=3), use_inner_text=False
        )
        expect(page.locator("#log .user .text")).to_have_text("<b>hi</b>")
        expect(page.locator("#error")).to_be_hidden()
        page.close()


def test_a_chat_outlives_a_turn_that_is_refused_and_a_server_that_is_gone(browser):
    with serving() as server:
        page, _ = opened(browser, server.address, 1280)
        say(page, "hi")
        answers = page.locator("#log .assistant .text")
        first = answer_to("hi", count=64)
        expect(answers).to_have_text([first], use_inner_text=False)
        long = "long " * 60
        say(page, long)
        expect(page.locator("#error")).to_contain_text("shorten the conversation")
        expect(page.locator("#say")).to_have_value(long.strip())
        expect(answers).to_have_text([first], use_inner_text=False)
        say(page, "short")
        second = answer_to("hi", first, "short", count=64)
        expect(answers).to_have_text([first, second], use_inner_text=False)
    page.locator("#again").click()
    expect(page.locator("#error")).to_contain_text("the server does not answer")
    expect(answers).to_have_text([first, second], use_inner_text=False)
    say(page, "lost")
    expect(page.locator("#say")).to_have_value("lost")
    expect(page.locator("#log li")).to_have_count(4)
    page.close()


def test_temperature_seed_and_system_prompt_are_asked_for_and_kept(browser, server: Running):
    page, _ = opened(browser, server.address, 390)
    for field, value in (("temperature", "0.7"), ("seed", "12"), ("system", "be brief"), ("tokens", "5")):
        page.locator(f"#{field}").fill(value)
    page.reload()
    expect(page.get_by_label("Temperature")).to_have_value("0.7")
    expect(page.get_by_label("System prompt")).to_have_value("be brief")
    sent = []
    page.on("request", lambda request: sent.append(request.post_data_json))
    say(page, "hi")
    expect(page.locator("#log .assistant .text")).to_have_text(answer_to("be briefhi", count=5), use_inner_text=False)
    expect(page.locator("#log .assistant .who")).to_contain_text("seed 12")
    page.get_by_label("Seed").fill("")
    page.get_by_role("button", name="Regenerate").press("Enter")
    expect(page.locator("#log .assistant .who")).to_have_text(re.compile(r"seed \d+ "))
    expect(page.locator("#log .assistant .who")).not_to_have_text(re.compile(r"seed 12\b"))
    expect(page.locator("#log li")).to_have_count(2)
    bodies = [(body["temperature"], body.get("seed"), body["messages"]) for body in sent]
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert bodies == [(0.7, 12, messages), (0.7, None, messages)]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the screen"
    page.close()


def test_what_needs_the_settings_of_the_server_waits_for_them(browser, server: Running):
    page, held = browser.new_page(), []
    page.set_default_timeout(PATIENCE_MS)
    turns = [{"role": "user", "text": "hi"}, {"role": "assistant", "text": "kept", "variant": "baseline"}]
    page.add_init_script(f"sessionStorage.setItem('lab-state', '{json.dumps({'turns': turns})}')")
    page.route("**/lab", lambda route: held.append(route))  # its first question waits
    with page.expect_request("**/lab"):
        page.goto(server.address)
    page.get_by_label("Temperature").fill("0.5")  # keeps the state, and sets the buttons
    expect(page.locator("#again")).to_be_disabled()
    held[0].continue_()
    page.locator("#again").click()
    expect(page.locator("#log .assistant .text")).to_have_text(answer_to("hi", count=64), use_inner_text=False)
    page.close()
