"""The preview page in a browser: opened on a server, and used like a person would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.support.chromium import TAB, Chromium
from tests.support.http_client import in_process
from tests.support.limited_server import limited_server
from tests.support.process import RunningServer
from webhook.server.components import Components

UNCHANGED = """
apiVersion: v1
kind: Pod
metadata: {name: unchanged, namespace: kube-system}
spec: {containers: [{name: main, image: registry.example/main}]}
"""

WARNED = """
apiVersion: v1
kind: Pod
metadata: {name: warned, namespace: ci, labels: {tekton.dev/taskRun: warned}}
spec:
  restartPolicy: Never
  initContainers:
  - {name: wrapped, image: registry.example/a, command: [sh, -c, "true"]}
  - {name: bare, image: registry.example/b}
  - {name: naked, image: registry.example/b}
  containers: [{name: main, image: registry.example/main}]
"""

BROKEN = "apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {a: b: c}\n"

MIXED = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: web}}
- {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a}]}}
- {metadata: {name: odd}}
- {apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: build, namespace: ci}}
"""


@pytest.fixture(scope="module")
def page_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose previews have time, because a busy machine starts their worker late."""
    with limited_server(tmp_path_factory.mktemp("certs")) as found:
        yield found


@pytest.fixture(scope="module")
def http(page_server: RunningServer) -> Iterator[httpx.Client]:
    with page_server.client() as client:
        yield client


@pytest.fixture
def page(chromium: Chromium, page_server: RunningServer) -> Iterator[Chromium]:
    """The page, newly opened. Fails the test if the console shows an error afterwards."""
    chromium.emulate()
    chromium.open(f"{page_server.web_url}/")
    leave_example(chromium)
    yield chromium
    # The browser logs a refused preview as a resource that failed to load, and it advises (INFO)
    # that autofocus is too late if a test focuses an element before the first frame.
    ignored = ("network", "rendering")
    logged = [entry for entry in chromium.console() if entry["source"] not in ignored]
    assert logged == []
    elsewhere = [
        request["url"]
        for request in chromium.requests()
        if not request["url"].startswith((f"{page_server.web_url}/", "data:", "about:"))
    ]
    assert elsewhere == []


@contextmanager
def page_of(chromium: Chromium, components: Components) -> Iterator[Chromium]:
    """Open the page of a server in this process, which knows its policies or asks for a token."""
    with in_process(components) as server:
        host, port = server.web_address
        chromium.emulate()
        chromium.open(f"https://{host}:{port}/")
        chromium.wait_for("document.querySelector('#policies-status').textContent")
        yield chromium


def preview(page: Chromium, workload: str) -> None:
    """Paste a workload, preview it and wait for the answer."""
    page.paste("#workload", workload)
    preview_again(page)


def preview_again(page: Chromium) -> None:
    page.click("#preview")
    wait_for_answer(page)


def focused(page: Chromium) -> str:
    """The id of the element that has the focus."""
    return str(page.run("return document.activeElement.id"))


def allow_clipboard(page: Chromium) -> None:
    page.devtools(
        "Browser.grantPermissions",
        origin=page.run("return origin"),
        permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
    )


def wait_for_answer(page: Chromium) -> None:
    page.wait_for(
        "document.querySelector('#results').getAttribute('aria-busy') === 'false' &&"
        "document.querySelector('.pod:not(.stale *), #error:not([hidden])')"
    )


def leave_example(page: Chromium) -> None:
    """Wait for the result of the example with which the page opens, and empty the input."""
    wait_for_policies(page)
    wait_for_answer(page)
    page.paste("#workload", "")
    page.requests()


def wait_for_policies(page: Chromium) -> None:
    page.wait_for("document.querySelector('.policy')")


def open_example(page: Chromium, title: str) -> None:
    """Choose one of the page's examples, and wait for its preview."""
    page.click("#example")
    page.wait_for("document.querySelector('#examples:popover-open')")
    page.click("#examples button", title)
    wait_for_answer(page)


def open_policy(page: Chromium, name: str) -> str:
    """Open the editor of a policy, and return its selector."""
    index = page.run(
        "const policies = [...document.querySelectorAll('.policy')];"
        "const at = policies.findIndex("
        "(policy) => policy.querySelector('.name').textContent === arguments[0]);"
        "if (at >= 0) policies[at].open = true; return at",
        name,
    )
    assert index >= 0, f"no policy {name!r}"
    return f".policy:nth-child({index + 1}) textarea"


def value_of(page: Chromium, selector: str) -> str:
    return str(page.run("return document.querySelector(arguments[0]).value", selector))


def edit_policy(page: Chromium, name: str, old: str, new: str) -> None:
    """Replace a text in the editor of a policy."""
    area = open_policy(page, name)
    text = value_of(page, area)
    assert old in text
    page.paste(area, text.replace(old, new))


def verdicts(page: Chromium) -> dict[str, str]:
    """What each policy does to the first pod, by the name of the policy."""
    found: list[tuple[str, str]] = page.run(
        "return [...document.querySelectorAll('.matches li')].map((entry) => "
        "[entry.querySelector('b').textContent, entry.querySelector('.chip').textContent "
        "+ ': ' + entry.querySelector('.what p:last-child').textContent])"
    )
    return dict(found)


def tab_to(page: Chromium, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(40):
        page.press(TAB)
        if page.run("return document.activeElement.matches(arguments[0])", selector):
            return
    raise AssertionError(f"Tab does not lead to {selector}")


def overflowing(page: Chromium) -> list[str]:
    """The elements that are wider than their box, except texts whose lines must not be broken."""
    found: list[str] = page.run(
        "return [...document.querySelectorAll('*')]"
        ".filter((each) => each.scrollWidth > each.clientWidth && each.clientWidth)"
        ".filter((each) => !each.matches('textarea, input, [role=tabpanel]'))"
        ".filter((each) => getComputedStyle(each).overflowX !== 'visible'"
        " || each === document.documentElement)"
        ".map((each) => each.outerHTML.slice(0, 200))"
    )
    return found
