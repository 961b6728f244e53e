"""The preview page in a browser, on a server that requires tokens for previews."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.authorizer import Known
from tests.support.axe import grave_findings
from tests.support.chromium import ENTER, SHIFT, TAB, Chromium
from tests.support.preview_page import (
    focused,
    overflowing,
    page_of,
    preview_again,
    wait_for_answer,
)
from tests.support.server_fixtures import make_components
from webhook.cluster.manifest_files_source import ManifestsSource

_POD = "{apiVersion: v1, kind: Pod, metadata: {name: pod}, spec: {containers: []}}"


@pytest.fixture
def page(source: ManifestsSource, chromium: Chromium) -> Iterator[Chromium]:
    """The page, newly opened without a token, with a workload."""
    with page_of(chromium, make_components(source, authorizer=Known())) as page:
        assert page.texts("#error") == []
        page.paste("#workload", _POD)
        yield page


def enter_token(page: Chromium, token: str) -> None:
    """Paste a token into the focused field, and press Enter."""
    assert focused(page) == "token"
    page.paste("#token", token)
    page.press(ENTER)
    wait_for_answer(page)


def test_token_field_appears_once_the_server_refuses_a_preview(page: Chromium) -> None:
    assert page.texts("label") == ["Workload", "Namespace", "Namespace labels", "Template path"]
    preview_again(page)
    assert "Enter a valid bearer token below (401" in page.text("#error")
    assert "kubectl create token" in page.text("#error")
    assert page.texts("label")[-1] == "Bearer token"
    enter_token(page, "good")
    assert page.texts("#error") == []
    assert page.texts(".pod h3") == ["Pod/pod"]


def test_token_is_sent_with_each_later_preview_and_not_stored(page: Chromium) -> None:
    preview_again(page)
    enter_token(page, "Bearer good")
    preview_again(page)
    requests = page.requests()
    sent = [request["headers"] for request in requests if request["method"] == "POST"]
    # The first one was that of the example, whose refusal is not shown.
    assert [headers.get("Authorization") for headers in sent] == [None] * 2 + ["Bearer good"] * 2
    assert not any("good" in request["url"] for request in requests)
    assert page.run("return document.querySelector('#token').type") == "password"
    kept = "return localStorage.length + sessionStorage.length + document.cookie.length"
    assert page.run(f"{kept} + location.search.length") == 0


def test_token_without_permission_is_answered_with_how_to_grant_it(page: Chromium) -> None:
    preview_again(page)
    enter_token(page, "poor")
    assert "The token does not allow previews (403" in page.text("#error")
    assert "kubectl create clusterrole" in page.text("#error")
    enter_token(page, "good")
    assert page.texts(".pod h3") == ["Pod/pod"]


def test_token_with_invalid_characters_is_not_sent(page: Chromium) -> None:
    preview_again(page)
    enter_token(page, "naïve token")
    assert "not a token" in page.text("#error")
    assert focused(page) == "token"
    assert [request["method"] for request in page.requests()].count("POST") == 2


def test_token_field_is_between_the_other_fields_and_the_buttons(page: Chromium) -> None:
    preview_again(page)
    page.press(TAB)
    assert focused(page) == "preview"
    page.press(SHIFT, TAB)
    page.press(SHIFT, TAB)
    assert focused(page) == "path"


def test_token_field_is_accessible(page: Chromium) -> None:
    preview_again(page)
    for token in ("", "poor", "naïve token", "good"):
        if token:
            enter_token(page, token)
        assert page.texts("label")[-1] == "Bearer token"
        for width, scheme in ((1280, "dark"), (320, "light")):
            page.emulate(width=width, scheme=scheme)
            assert grave_findings(page) == [], (token, width, scheme)
            assert overflowing(page) == [], (token, width, scheme)
