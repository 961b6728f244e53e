"""`WWW-Authenticate` as registries write it, and as nobody should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.images.challenge import parse


@pytest.mark.parametrize(
    ("header", "expected"),
    [
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
    ],
)  # fmt: skip
def test_challenges(header: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    assert [(c.scheme, dict(c.parameters)) for c in parse([header])] == expected


def test_several_headers_count_together() -> None:
    assert [c.scheme for c in parse(["Basic realm=x", "Bearer realm=y"])] == ["basic", "bearer"]


@given(st.text('Bbasic realm="\\,= \té', max_size=80))
def test_anything_is_read_to_its_end(header: str) -> None:
    for challenge in parse([header]):
        assert challenge.scheme == challenge.scheme.lower() != ""


def test_a_long_one_takes_no_longer() -> None:
    for filling in ('"', "a=", ' \\"', "a ,", '="\\'):
        parse([f"Bearer {filling * 100_000}"])
