"""Headless Chromium, controlled through chromedriver with W3C WebDriver: JSON over HTTP."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.needs import path_of
from tests.support.waiting import TIMEOUT_SECONDS

CONTROL, SHIFT, ENTER, TAB, END, LEFT = "\ue009", "\ue008", "\ue007", "\ue004", "\ue010", "\ue012"
"""The key codes of WebDriver."""

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_CLICKS = 5
"""The number of times that a click is repeated which the page has received nowhere."""
_START_ATTEMPTS = 20

# The arguments are an element, a time limit in milliseconds, and the callback.
_AWAIT_STILL = """
    const [element, milliseconds, done] = arguments;
    const deadline = performance.now() + milliseconds;
    let before = "", frames = 0;
    const check = () => {
        const { x, y, width, height } = element.getBoundingClientRect();
        const now = [x, y, width, height, innerWidth, innerHeight].join();
        frames = now === before ? frames + 1 : 0;
        before = now;
        if (frames >= 3 || performance.now() > deadline) done(frames >= 3);
        else requestAnimationFrame(check);
    };
    check();
"""
_NOTE_CLICK = """
    const [element] = arguments;
    window.clickReached = null;
    const note = (event) => { window.clickReached = event.composedPath().includes(element); };
    addEventListener("click", note, { capture: true, once: true });
"""


class Chromium:
    """One browser window."""

    def __init__(self, client: httpx.Client, session: str) -> None:
        self._client = client
        self._session = session

    def open(self, url: str) -> None:
        """Load a page and clear the logs of earlier ones."""
        self._call("POST", "url", {"url": "about:blank"})
        self.console()
        self.requests()
        self._call("POST", "url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Run a JavaScript function body and return its value. Elements become references."""
        return self._call("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, expression: str, *arguments: object) -> Any:
        """Wait until a JavaScript expression is true, and return its value."""
        script = f"""
            const done = arguments[arguments.length - 1];
            const deadline = performance.now() + {TIMEOUT_SECONDS * 1000};
            const check = () => {{
                const value = {expression};
                if (value || performance.now() > deadline) done(value || null);
                else setTimeout(check, 10);
            }};
            check();
        """
        value = self._call("POST", "execute/async", {"script": script, "args": list(arguments)})
        assert value, f"never came true: {expression}\n{self.text('body')}"
        return value

    def text(self, selector: str) -> str:
        """Return the text of the first element that matches."""
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all visible elements that match."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".filter((e) => e.checkVisibility()).map((e) => e.textContent)",
            selector,
        )
        return found

    def click(self, selector: str, text: str = "") -> None:
        """Click on the first element that matches and contains the text.

        On a busy machine, the page can move between the aim and the click. So the click waits until
        the element stays in its place, and it is repeated if no element has received it.
        """
        element = self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".find((e) => e.textContent.includes(arguments[1]))",
            selector,
            text,
        )
        assert element, f"no {selector} with {text!r}"
        for _ in range(_CLICKS):
            arguments = [element, int(TIMEOUT_SECONDS * 1000)]
            still = self._call("POST", "execute/async", {"script": _AWAIT_STILL, "args": arguments})
            assert still, f"{selector} with {text!r} does not stay in its place"
            self.run(_NOTE_CLICK, element)
            self._call("POST", f"element/{element[_ELEMENT]}/click", {})
            reached = self.run("return window.clickReached")
            assert reached is not False, f"another element received the click on {selector}"
            if reached:
                return
        raise AssertionError(f"no element received the click on {selector} with {text!r}")

    def type(self, selector: str, text: str) -> None:
        """Focus an element and type into it, key by key."""
        element = self.run("return document.querySelector(arguments[0])", selector)
        self._call("POST", f"element/{element[_ELEMENT]}/value", {"text": text})

    def press(self, *keys: str) -> None:
        """Press all keys in order and then release them, on the focused element."""
        down = [{"type": "keyDown", "value": key} for key in keys]
        up = [{"type": "keyUp", "value": key} for key in reversed(keys)]
        actions = [{"type": "key", "id": "keyboard", "actions": down + up}]
        self._call("POST", "actions", {"actions": actions})

    def paste(self, selector: str, text: str) -> None:
        """Replace the text of a field, as pasting does."""
        self.run(
            "const field = document.querySelector(arguments[0]); field.focus();"
            "field.value = arguments[1]; field.dispatchEvent(new Event('input', {bubbles: true}))",
            selector,
            text,
        )

    def emulate(self, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Set the window size and the colour scheme."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", **metrics)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.devtools("Emulation.setEmulatedMedia", features=[feature])

    def devtools(self, command: str, **parameters: object) -> Any:
        """Run a command of the DevTools protocol."""
        return self._call("POST", "goog/cdp/execute", {"cmd": command, "params": parameters})

    def console(self) -> list[dict[str, Any]]:
        """Return and clear the entries of the console."""
        entries: list[dict[str, Any]] = self._call("POST", "se/log", {"type": "browser"})
        return entries

    def requests(self) -> list[dict[str, Any]]:
        """Return and clear the requests of the page: url, method and headers."""
        entries = self._call("POST", "se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return [
            message["params"]["request"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def _call(self, method: str, path: str, body: dict[str, object]) -> Any:
        response = self._client.request(method, f"/session/{self._session}/{path}", json=body)
        value = response.json()["value"]
        assert response.is_success, f"{path}: {value['error']}: {value['message']}"
        return value


@contextmanager
def start_chromium(profile: Path) -> Iterator[Chromium]:
    """Start a browser with a new profile. It accepts self-signed certificates."""
    browser, driver = path_of("chromium"), path_of("chromedriver")
    options = {
        "binary": browser,
        "args": [
            "--headless=new",
            # Containers rarely allow the sandbox, and the tests open only the project's page.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            # Each page that is opened would start two processes, for other sites and in reserve.
            "--renderer-process-limit=1",
            "--disable-site-isolation-trials",
            "--disable-features=SpareRendererForSitePerProcess",
            "--no-proxy-server",
            f"--user-data-dir={profile}",
        ],
    }
    capabilities = {
        "acceptInsecureCerts": True,
        "timeouts": {"script": int(TIMEOUT_SECONDS * 2000)},
        "goog:chromeOptions": options,
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
    }
    with (
        _running(driver) as url,
        httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS * 3, trust_env=False) as client,
    ):
        wanted = {"capabilities": {"alwaysMatch": capabilities}}
        value = client.post("/session", json=wanted).json()["value"]
        assert "sessionId" in value, value
        try:
            yield Chromium(client, value["sessionId"])
        finally:
            client.delete(f"/session/{value['sessionId']}")


@contextmanager
def _running(driver: str) -> Iterator[str]:
    """Run chromedriver, and yield its URL.

    With `--port=0` it takes a port that is free for IPv6 and exits if that port is not free for
    IPv4. Beside tests that leave thousands of sockets in TIME_WAIT, several starts can be needed.
    """
    said = ""
    for _ in range(_START_ATTEMPTS):
        with subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said += line
                if found := re.search(r"started successfully on port (\d+)", line):
                    try:
                        yield f"http://127.0.0.1:{found[1]}"
                    finally:
                        process.terminate()
                    return
        if "Address already in use" not in said:
            break
    raise AssertionError(f"chromedriver did not start: {said}")
