"""Tests of `WWW-Authenticate` headers, valid and malformed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.complexity import grows_linearly
from webhook.images.www_authenticate import parse_challenges


def test_header_is_parsed_into_challenges() -> None:
    cases: list[tuple[str, list[tuple[str, dict[str, str]]]]] = [
        (
            'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",'
            'scope="repository:library/debian:pull"',
            [("bearer", {"realm": "https://auth.docker.io/token", "service": "registry.docker.io",
                         "scope": "repository:library/debian:pull"})],
        ),
        ('Basic realm="a, b"', [("basic", {"realm": "a, b"})]),
        ("basic", [("basic", {})]),
        (
            'Negotiate, Basic realm=x , charset="UTF-8"',
            [("negotiate", {}), ("basic", {"realm": "x", "charset": "UTF-8"})],
        ),
        ('Bearer REALM = "a\\"b" ,, x=y', [("bearer", {"realm": 'a"b', "x": "y"})]),
        ('Bearer realm="a",realm="b"', [("bearer", {"realm": "a"})]),
        ("", []),
        ("realm=x", []),
        ('Bearer realm="never closed', [("bearer", {})]),
    ]  # fmt: skip
    assert [
        (header, [(c.scheme, dict(c.parameters)) for c in parse_challenges([header])])
        for header, _ in cases
    ] == cases


@given(st.text('Bbasic realm="\\,= \té', max_size=80))
def test_any_header_is_parsed_without_an_error(header: str) -> None:
    for found in parse_challenges([header]):
        assert found.scheme == found.scheme.lower() != ""


@pytest.mark.parametrize("filling", ['"', "a=", ' \\"', "a ,", '="\\', " ", "a", 'a="', 'a="b" '])
def test_parsing_time_grows_linearly_with_the_header(filling: str) -> None:
    def parse_whole(headers: list[str]) -> object:
        return parse_challenges(headers, max_header_characters=10**9)

    assert grows_linearly(lambda size: [f"Bearer {filling * size}"], parse_whole)


def test_headers_above_the_maximum_length_and_number_are_ignored() -> None:
    assert parse_challenges([f"Basic {' ' * 5_000}, Bearer"]) == parse_challenges(["Basic"])
    assert len(parse_challenges(["Basic"] * 1_000)) == 4
