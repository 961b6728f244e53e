"""The preview page: links that hold the input in their fragment."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.authorizer import Known
from tests.support.chromium import ENTER, Chromium
from tests.support.preview_page import (
    WARNED,
    allow_clipboard,
    edit_policy,
    focused,
    open_policy,
    page_of,
    preview,
    preview_again,
    tab_to,
    value_of,
    verdicts,
    wait_for_answer,
)
from tests.support.server_fixtures import make_components
from webhook.cluster.manifest_files_source import ManifestsSource

INPUT = {"workload": WARNED, "namespace": "", "labels": "", "path": "", "policies": []}

INCOMPRESSIBLE = "".join(f"{number * 7919 % 1000003:x}" for number in range(20_000))
"""A text whose link is longer than 32 KiB."""


def new_policies(count: int) -> list[dict[str, str]]:
    return [{"name": f"p{number}", "text": "a: b"} for number in range(count)]


def copied_link(page: Chromium) -> str:
    allow_clipboard(page)
    page.click("#copy-link")
    page.wait_for("document.querySelector('#link-note').textContent.startsWith('Copied')")
    return str(page.run("return navigator.clipboard.readText()"))


def fragment(value: Any, prefix: str = "#v1=") -> str:
    """A link's fragment, made without the page."""
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = compressor.compress(json.dumps(value).encode()) + compressor.flush()
    return prefix + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def content(link: str) -> Any:
    """What a link holds, read without the page."""
    text = link.partition("#v1=")[2]
    packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return json.loads(zlib.decompress(packed, wbits=-zlib.MAX_WBITS))


def test_link_restores_the_input_and_previews_it(page: Chromium) -> None:
    page.type("#namespace", "nightly")
    page.type("#labels", "team=build")
    edit_policy(page, "tekton-on-crio", "500ms", "1750ms")
    page.click("#add-policy")
    workload = f"# é\n{WARNED}"
    preview(page, workload)
    expected = verdicts(page)
    assert expected
    link = copied_link(page)
    page.open("about:blank")
    page.open(link)
    wait_for_answer(page)
    assert verdicts(page) == expected
    assert value_of(page, "#workload") == workload
    assert value_of(page, "#namespace") == "nightly"
    assert value_of(page, "#labels") == "team=build"
    assert page.texts(".policy.edited .name") == ["new-policy-1", "tekton-on-crio"]
    assert "1750ms" in value_of(page, open_policy(page, "tekton-on-crio"))
    assert copied_link(page) == link


def test_input_of_a_link_is_not_sent_to_the_server_in_a_url(page: Chromium) -> None:
    page.requests()
    page.run("location.hash = arguments[0]", fragment(INPUT))
    wait_for_answer(page)
    assert page.texts(".pod h3") == ["Pod/warned"]
    assert [request["url"] for request in page.requests() if "v1=" in request["url"]] == []


def test_link_opens_in_an_open_page_and_replaces_the_edits(page: Chromium) -> None:
    edit_policy(page, "tekton-on-crio", "500ms", "1750ms")
    page.run("location.hash = arguments[0]", fragment(INPUT))
    wait_for_answer(page)
    assert page.texts(".policy.edited") == []


def test_link_is_copied_with_the_keyboard_alone(page: Chromium) -> None:
    allow_clipboard(page)
    page.paste("#workload", "x")
    tab_to(page, "#copy-link")
    page.press(ENTER)
    page.wait_for("document.querySelector('#link-note').textContent.startsWith('Copied')")
    assert content(page.run("return navigator.clipboard.readText()"))["workload"] == "x"
    assert focused(page) == "copy-link"


def test_link_is_shown_and_selected_if_the_clipboard_cannot_be_used(page: Chromium) -> None:
    page.run("navigator.clipboard.writeText = async () => { throw new Error('denied'); }")
    page.paste("#workload", "x")
    tab_to(page, "#copy-link")
    page.press(ENTER)
    page.wait_for("document.querySelector('#link').checkVisibility()")
    assert focused(page) == "link"
    link = value_of(page, "#link")
    assert page.run("return getSelection().toString()") == link
    assert content(link)["workload"] == "x"
    page.paste("#workload", "y")
    assert page.texts("#link-note") == []


def test_input_that_is_too_long_gets_no_link(page: Chromium) -> None:
    page.paste("#workload", INCOMPRESSIBLE)
    page.click("#copy-link")
    page.wait_for("document.querySelector('#link-note').textContent")
    assert "too long for a link" in page.text("#link-note")
    assert page.texts("#link") == []


def test_link_with_as_many_policies_as_a_preview_takes_can_be_copied(page: Chromium) -> None:
    page.run("location.hash = arguments[0]", fragment(INPUT | {"policies": new_policies(200)}))
    wait_for_answer(page)
    assert len(content(copied_link(page))["policies"]) == 200
    page.click("#add-policy")
    page.click("#copy-link")
    page.wait_for("document.querySelector('#link-note').textContent")
    assert page.text("#link-note") == "A link holds up to 200 edited policies."
    assert page.texts("#link") == []


def test_link_that_cannot_be_read_is_an_error(page: Chromium) -> None:
    page.paste("#workload", "mine")
    for broken, message in (
        ("#v1=%%%", ""),
        ("#v1=AAAA", ""),
        ("#v2=AAAA", "another release may have made it"),
        (fragment([1]), "it holds no input of this page"),
        (fragment(INPUT | {"workload": 5}), "it holds no input of this page"),
        (fragment(INPUT | {"policies": [{"name": "x"}]}), "it holds no input of this page"),
        (fragment(INPUT | {"workload": "a" * 5_000_000}), "its text is longer than 4 MiB"),
        (fragment(INPUT | {"workload": INCOMPRESSIBLE}), "it is longer than 32 KiB"),
        (fragment(INPUT | {"policies": new_policies(201)}), "it holds more than 200 policies"),
    ):
        page.run(
            "document.querySelector('#error').hidden = true; location.hash = arguments[0]", broken
        )
        page.wait_for("document.querySelector('#error').checkVisibility()")
        assert page.text("#error .label") == "This link cannot be read"
        assert message in page.text("#error .mono")
        assert value_of(page, "#workload") == "mine"


def test_hostile_link_cannot_run_scripts(page: Chromium) -> None:
    hostile = '<img src=x onerror="window.pwned=1">'
    policies = [
        {"name": hostile, "text": f"kind: {hostile}"},
        {"name": "__proto__", "text": "a: 1"},
    ]
    page.run(
        "location.hash = arguments[0]",
        fragment(INPUT | {"namespace": hostile, "policies": policies}),
    )
    wait_for_answer(page)
    assert hostile in page.texts(".policy .name")
    assert page.run("return [window.pwned, document.images.length]") == [None, 0]


@pytest.fixture
def guarded(source: ManifestsSource, chromium: Chromium) -> Iterator[Chromium]:
    """The page of a server that requires tokens."""
    with page_of(chromium, make_components(source, authorizer=Known())) as page:
        yield page


def test_token_is_in_no_link(guarded: Chromium) -> None:
    preview(guarded, WARNED)
    guarded.paste("#token", "good")
    preview_again(guarded)
    link = copied_link(guarded)
    assert set(content(link)) == {"workload", "namespace", "labels", "path", "policies"}
    assert "good" not in json.dumps(content(link))


def test_token_shows_the_policies(guarded: Chromium) -> None:
    assert guarded.text("#policies-status") == "Shown with a token"
    assert guarded.texts(".policy .name") == ["tekton-on-crio"]  # That of the example.
    guarded.click("#enter-token")
    assert focused(guarded) == "token"
    guarded.paste("#token", "good")
    guarded.run("document.querySelector('#token').dispatchEvent(new Event('change'))")
    guarded.wait_for("document.querySelectorAll('.policy').length > 1")
    assert guarded.texts("#enter-token") == []


def test_edits_of_a_link_are_kept_until_the_policies_are_known(
    guarded: Chromium,
) -> None:
    text = (
        "apiVersion: podsettle.dev/v1alpha1\nkind: SettlePolicy\nmetadata: {name: tekton-on-crio}\n"
        "spec: {namespaceSelector: {}, action: Audit, remedies: {postInitSleep: {}}}"
    )
    policies = [{"name": "tekton-on-crio", "text": text}]
    guarded.run("location.hash = arguments[0]", fragment(INPUT | {"policies": policies}))
    wait_for_answer(guarded)
    assert guarded.texts(".policy .chip") == ["New"]
    guarded.paste("#token", "good")
    preview_again(guarded)
    guarded.wait_for("document.querySelectorAll('.policy').length > 5")
    assert guarded.texts(".policy.edited .name") == ["tekton-on-crio"]
    assert "Edited" in guarded.texts(".policy.edited .chip")
    assert verdicts(guarded)["tekton-on-crio"].startswith("Audit only")
