"""Tests of pull secrets, which are read and matched as in the kubelet."""

from __future__ import annotations

import base64
import json
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.complexity import grows_linearly
from tests.support.pull_secrets import docker_config
from webhook.core.pull_secrets import DOCKER_CFG, DOCKER_CONFIG_JSON, PullSecret
from webhook.images.keyring import MAX_REGISTRIES, Credential, Keyring, read_keyring

ONE = ("me", "x")


def matches(place: str, name: str) -> bool:
    return bool(read_keyring([docker_config({place: ONE})]).matching(name))


def test_credential_matches_image_names_as_in_the_kubelet() -> None:
    cases: list[tuple[str, str, bool]] = [
        # These cases follow kubernetes pkg/credentialprovider/keyring_test.go.
        ("registry.example", "registry.example/a", True),
        ("https://registry.example", "registry.example/a", True),
        ("http://registry.example/", "registry.example/a", True),
        ("https://registry.example/v1/", "registry.example/a", True),
        ("https://registry.example/v2/", "registry.example/a", True),
        ("https://registry.example/v2/team", "registry.example/team/a", True),
        ("https://registry.example/v2", "registry.example/a", False),
        ("registry.example/team", "registry.example/team/a", True),
        ("registry.example/team", "registry.example/teams/a", True),
        ("registry.example/team/", "registry.example/teams/a", False),
        ("registry.example/team", "registry.example/a", False),
        ("registry.example", "registry.example:443/a", False),
        ("registry.example:5000", "registry.example:5000/a", True),
        ("registry.example:5000", "registry.example/a", False),
        ("*.example", "registry.example/a", True),
        ("*.example", "a.registry.example/a", False),
        ("*.*.example", "a.registry.example/a", True),
        ("re*y.example", "registry.example/a", True),
        ("reg.*.io", "reg.x.io/a", True),
        ("*", "localhost/a", True),
        ("*", "registry.example/a", False),
        ("*.example:5000", "registry.example:5000/a", True),
        ("registry.example:*", "registry.example:5000/a", False),
        ("registry.example/*", "registry.example/team/a", False),
        ("REGISTRY.example", "registry.example/a", False),
        ("user@registry.example", "registry.example/a", True),
        ("[::1]:5000", "[::1]:5000/a", True),
        ("[::1", "[::1]/a", False),
        # Go's filepath.Match reads brackets as a character class. SplitHostPort would remove them,
        # but it fails without a port.
        ("[::1]", "[::1]/a", False),
        # Go's url.Parse allows no such wildcards in a host.
        ("re?.example", "reg.example/a", False),
        ("re[g].example", "reg.example/a", False),
        ("re\\g.example", "reg.example/a", False),
        ("", "registry.example/a", False),
        # Docker Hub.
        ("https://index.docker.io/v1/", "docker.io/library/a", True),
        ("index.docker.io", "docker.io/library/a", True),
        ("docker.io", "docker.io/library/a", True),
        ("registry-1.docker.io", "docker.io/library/a", False),
        ("https://index.docker.io/v1/", "quay.io/a/b", False),
    ]
    assert [(place, name, matches(place, name)) for place, name, _ in cases] == cases


def test_credentials_are_ordered_by_specificity_then_by_secret() -> None:
    first = {"quay.io": ("a", "p"), "quay.io/team": ("b", "p"), "*.io": ("c", "p")}
    second = {"quay.io/team/app": ("d", "p"), "https://quay.io/v1/": ("e", "p")}
    ring = read_keyring([docker_config(first), docker_config(second)])
    assert [c.username for c in ring.matching("quay.io/team/app")] == ["d", "b", "a", "e", "c"]
    assert [c.username for c in ring.matching("quay.io/other")] == ["a", "e", "c"]


def test_docker_hub_credential_applies_where_no_other_matches() -> None:
    ring = read_keyring(
        [docker_config({"https://index.docker.io/v1/": ONE, "docker.io/a": ("b", "p")})]
    )
    assert [c.username for c in ring.matching("docker.io/a/x")] == ["b"]
    assert [c.username for c in ring.matching("docker.io/c/x")] == ["me"]


def auth(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"auth": auth("me:pass:word")}, ("me", "pass:word")),
        ({"auth": auth("me:pä").rstrip("=")}, ("me", "pä")),
        ({"auth": auth("me:x"), "username": "other", "password": "y"}, ("me", "x")),
        ({"username": "me", "password": "x", "email": 5}, ("me", "x")),
        ({"auth": auth(":x")}, ("", "x")),
        # As `base64` without `-w0`, Terraform, and programs of .NET write it.
        ({"auth": f"{auth('me:x')[:4]}\r\n{auth('me:x')[4:]}\n"}, ("me", "x")),
        ({"auth": None, "username": "me", "password": "x", "email": None}, ("me", "x")),
        ({"Username": "me", "Password": "x"}, ("me", "x")),
    ],
)
@pytest.mark.parametrize("kind", [DOCKER_CONFIG_JSON, DOCKER_CFG])
def test_entry_gives_user_name_and_password(
    kind: str, entry: Any, expected: tuple[str, str]
) -> None:
    auths = {"quay.io": entry, "other.example": None}
    document = {"auths": auths} if kind == DOCKER_CONFIG_JSON else auths
    ring = read_keyring([PullSecret("s", kind, json.dumps(document).encode())])
    assert ring.matching("quay.io/a") == (Credential(*expected),)
    assert ring.problems == ()


def test_user_name_without_a_password_is_no_credential() -> None:
    entries = ({"auth": auth("me:"), "identitytoken": "t"}, {"auth": "", "username": "me"})
    for entry in entries:
        auths = {"auths": {"quay.io": entry}}
        ring = read_keyring([PullSecret("s", DOCKER_CONFIG_JSON, json.dumps(auths).encode())])
        assert ring == Keyring(bytes=ring.bytes)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b'"x"', b"\xff", b'{"auths": 5}', b'{"auths": {"a": "b"}}',
        b'{"auths": {"a": {"auth": 5}}}', b'{"auths": {"a": {"auth": "!"}}}',
        b'{"auths": {"a": {"auth": "bWU="}}}', b'{"auths": {"a": {"auth": "/////w=="}}}',
        b"[" * 100_000,
    ],
)  # fmt: skip
def test_unreadable_secret_is_a_problem_without_its_contents(content: bytes) -> None:
    good = docker_config({"quay.io": ONE}, "good")
    ring = read_keyring([PullSecret("bad", DOCKER_CONFIG_JSON, content), good])
    assert ring.matching("quay.io/a") == (Credential(*ONE),)
    (problem,) = ring.problems
    assert problem.startswith("pull secret 'bad' cannot be read (")
    assert len(problem) < 60


def test_secret_of_another_type_is_ignored() -> None:
    opaque = PullSecret("opaque", "Opaque", b"x")
    assert read_keyring([opaque, PullSecret("empty")]) == Keyring()
    said = read_keyring(
        [PullSecret("gone", problem="does not exist"), PullSecret("", problem="no")]
    )
    assert said.problems == ("pull secret 'gone' does not exist", "no")


def test_representations_contain_no_password() -> None:
    secret = docker_config({"quay.io": ("me", "hidden")})
    ring = read_keyring([secret])
    shown = f"{secret!r} {ring!r} {ring.matching('quay.io/a')!r} {ring.matching('quay.io/a')}"
    assert "hidden" not in shown
    assert base64.b64encode(b"me:hidden").decode() not in shown


def secret_of(count: int) -> PullSecret:
    return docker_config({f"r{number}.example": ONE for number in range(count)})


def test_size_of_a_keyring_counts_only_its_usable_entries() -> None:
    long = "a." * 200_000 + "example"
    ring = read_keyring([docker_config({long: ONE, "*" * 200_000: ONE, "quay.io": ONE})])
    assert [holding.key for holding in ring.entries] == ["quay.io"], "no image has such a name"
    assert ring.bytes < 2_000
    ring = read_keyring([docker_config({"quay.io": ("me", "x" * 500_000)})])
    assert 500_000 < ring.bytes < 502_000


def test_registries_above_the_maximum_are_ignored_with_a_problem() -> None:
    half = MAX_REGISTRIES // 2
    ring = read_keyring([secret_of(half), secret_of(half)])
    assert (len(ring.entries), ring.problems) == (MAX_REGISTRIES, ())
    ring = read_keyring([docker_config({"quay.io": ONE}), secret_of(MAX_REGISTRIES)])
    assert len(ring.entries) == MAX_REGISTRIES
    assert ring.matching("quay.io/a") == (Credential(*ONE),)
    assert ring.problems == (
        f"only the first {MAX_REGISTRIES} registries in the pull secrets are used",
    )


def test_entries_without_a_credential_count_against_the_maximum() -> None:
    """A Secret of 1 MiB has room for tens of thousands of them, and each takes time."""
    empty = docker_config({f"r{number}.example": ("", "") for number in range(MAX_REGISTRIES)})
    ring = read_keyring([empty, docker_config({"quay.io": ONE})])
    assert ring.entries == ()
    assert len(ring.problems) == 1


@pytest.mark.parametrize("label", ["*a*a*a*a*a*b", "*" * 60 + "b"])
def test_matching_time_grows_linearly_with_the_label(label: str) -> None:
    ring = read_keyring([docker_config({label: ONE})])
    assert grows_linearly(lambda size: "a" * size + "/x", ring.matching)


@pytest.mark.parametrize("part", ["*a", "*", "a.", "*.", "/a", ":", "[", "%2a"])
def test_reading_time_grows_linearly_with_the_secret(part: str) -> None:
    assert grows_linearly(
        lambda size: [docker_config({part * size: ONE})],
        lambda secrets: read_keyring(secrets).matching("a.a/a"),
    )


LABELS = st.text("ab*", min_size=1, max_size=3)
PATHS = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3).map("/".join)


@given(
    st.lists(LABELS, min_size=1, max_size=3),
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3),
    st.sampled_from(["", ":1", ":2"]),
    st.sampled_from(["", ":1", ":2"]),
    PATHS,
    PATHS,
)
def test_labels_port_and_path_are_matched_separately(
    globs: list[str], labels: list[str], wanted_port: str, port: str, prefix: str, path: str
) -> None:
    place = f"{'.'.join(globs)}{wanted_port}/{prefix}".rstrip("/")
    expected = (
        len(globs) == len(labels)
        and all(fnmatchcase(label, glob) for glob, label in zip(globs, labels, strict=False))
        and wanted_port == port
        and path.startswith(prefix)
    )
    assert matches(place, f"{'.'.join(labels)}{port}/{path}") is expected


@given(st.dictionaries(st.text(max_size=12), st.just(ONE), max_size=4), st.text(max_size=12))
def test_any_registry_key_is_read_without_an_error(
    auths: dict[str, tuple[str, str]], name: str
) -> None:
    read_keyring([docker_config(auths)]).matching(name)
