"""Tests of image references: the grammar of distribution/reference, the defaults of Docker."""

from __future__ import annotations

import re
from string import ascii_letters, ascii_lowercase, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.image_reference import Reference, is_short_name, parse_reference

HEX = "0123456789abcdef" * 4
SHA256 = f"sha256:{HEX}"
SHA512 = f"sha512:{HEX}{HEX}"


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag", "digest"),
    [
        ("debian", "docker.io", "library/debian", "latest", ""),
        ("debian:12", "docker.io", "library/debian", "12", ""),
        ("team/app", "docker.io", "team/app", "latest", ""),
        ("docker.io/debian", "docker.io", "library/debian", "latest", ""),
        ("index.docker.io/debian", "docker.io", "library/debian", "latest", ""),
        ("docker.io/a/b:1", "docker.io", "a/b", "1", ""),
        ("quay.io/a/b/c:1.2-x_Y", "quay.io", "a/b/c", "1.2-x_Y", ""),
        ("localhost/a", "localhost", "a", "latest", ""),
        ("host:5000/a", "host:5000", "a", "latest", ""),
        ("Upper/a", "upper", "a", "latest", ""),
        ("[fd00::1]:5000/a:1", "[fd00::1]:5000", "a", "1", ""),
        ("[::1]/a", "[::1]", "a", "latest", ""),
        (f"debian@{SHA256}", "docker.io", "library/debian", "", SHA256),
        (f"quay.io:443/a:1@{SHA256}", "quay.io:443", "a", "1", SHA256),
        (f"a@{SHA512}", "docker.io", "library/a", "", SHA512),
        ("a__b/c.d-e--f", "docker.io", "a__b/c.d-e--f", "latest", ""),
        (f"{HEX}x", "docker.io", f"library/{HEX}x", "latest", ""),
    ],
)
def test_valid_reference_is_parsed_into_its_parts(
    text: str, host: str, repository: str, tag: str, digest: str
) -> None:
    assert parse_reference(text) == Reference(host, repository, tag, digest)


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "@", "a:", ":1", "a@", "a@sha256:abc", f"a@{SHA256}x", f"a@md5:{HEX}",
        f"a@sha256:{HEX.upper()}", "Debian", "a/B", "quay.io/A", "quay.io/", "/a", "a//b", "a/",
        "a___b", "-a", "a-", "a..b", "a b", "a\n", "a:1\n", "a:" + "x" * 129, "a:-x", "é", "a:é",
        HEX, "https://quay.io/a", "quay.io:x/a", "quay.io:123456/a", "user@quay.io/a", "a.-b/c",
        "quay.io/../a", "quay.io/a/../../b", "quay.io/%2e%2e", "quay.io/a?b", "quay.io/a#b",
        "quay.io\\a/b", "[::1/a", "quay.io/" + "a" * 256, "\x00", "a:1:2",
    ],
)  # fmt: skip
def test_invalid_reference_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"^'.*(image reference|digest|identifier)"):
        parse_reference(text)


def test_port_above_65535_is_an_error_that_names_the_image() -> None:
    with pytest.raises(ValueError, match=r"^'a\.b:65536/x' names a port above 65535$"):
        parse_reference("a.b:65536/x")
    assert parse_reference("a.b:65535/x").host == "a.b:65535"


@pytest.mark.parametrize(
    "part", ["a", "a.", "a/", "a:", "a_", "a-", "a@", "A", "1.", "[", "[:", "é"]
)
def test_reference_that_is_too_long_is_refused_without_being_parsed(part: str) -> None:
    """The test counts operations instead of time: a text that is too long is not searched."""

    class Text(str):
        def partition(self, separator: str) -> tuple[str, str, str]:
            raise AssertionError(f"searched for {separator!r}")

    with pytest.raises(ValueError, match="is not an image reference"):
        parse_reference(Text(part * 601))


PARTS = st.from_regex(r"[a-z0-9]{1,8}((\.|_|__|-{1,3})[a-z0-9]{1,8}){0,2}", fullmatch=True)
LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)
HOSTS = st.builds(
    "{}{}".format,
    st.lists(LABELS, min_size=2, max_size=4).map(".".join) | st.just("localhost"),
    st.just("") | st.integers(1, 65535).map(":{}".format),
)
REFERENCES = st.builds(
    Reference,
    HOSTS.filter(lambda host: host not in ("docker.io", "index.docker.io")),
    st.lists(PARTS, min_size=1, max_size=4).map("/".join),
    st.text(ascii_letters + digits + "_", min_size=1, max_size=1).flatmap(
        lambda first: st.text(ascii_letters + digits + "_.-", max_size=20).map(first.__add__)
    ),
    st.sampled_from(["", SHA256, SHA512]),
)


@given(REFERENCES)
def test_formatted_reference_is_parsed_to_the_same_reference(reference: Reference) -> None:
    text = f"{reference.host}/{reference.repository}:{reference.tag}"
    assert parse_reference(f"{text}@{reference.digest}" if reference.digest else text) == reference
    assert parse_reference(str(parse_reference(text))) == parse_reference(text)


@given(st.text(ascii_lowercase + "A0.:/@_-[]% é\n?#\\", max_size=40) | st.text(max_size=20))
def test_parsed_reference_contains_only_characters_allowed_in_a_url(text: str) -> None:
    try:
        found = parse_reference(text)
    except ValueError:
        return
    assert re.fullmatch(r"[a-z0-9.\-]+(:[0-9]+)?|\[[0-9a-f:]+\](:[0-9]+)?", found.host)
    assert re.fullmatch(r"[a-z0-9._/-]+", found.repository)
    assert not {".", "..", ""} & set(found.repository.split("/"))
    assert re.fullmatch(r"[A-Za-z0-9._-]*", found.tag)
    assert bool(found.tag or found.digest)
    assert parse_reference(str(found)).name == found.name


# The first parts and the verdicts are those of containers/image `IsShortName`.
@pytest.mark.parametrize(
    ("first", "is_short"),
    [
        ("", True), ("team/", True), ("ubi9/", True), ("a/b/", True), ("Team/", True),
        ("LOCALHOST/", True), ("library/", True), ("localhost/", False), ("docker.io/", False),
        ("quay.io/team/", False), ("host:5000/", False), ("localhost:5000/", False),
        ("10.0.0.1/", False), ("[fd00::1]/", False), ("Quay.IO/", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rest", ["app", "app:1", f"app@{SHA256}", f"app:1@{SHA256}", "app:v1.2"])
def test_name_is_short_unless_its_first_part_is_a_registry(
    first: str, rest: str, is_short: bool
) -> None:
    assert is_short_name(first + rest) is is_short


@pytest.mark.parametrize("text", ["", "Not An Image", "app:", f"app@{SHA256}/x", HEX])
def test_an_invalid_reference_is_no_short_name(text: str) -> None:
    assert not is_short_name(text)
