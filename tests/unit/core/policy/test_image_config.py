"""Tests for imageConfig: the registries that a policy allows, and the queries for images."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.factories import Json, node, pod
from tests.support.kubelet_expansion import kubelet_expands
from tests.support.reviews import make_request
from webhook.cluster.decode import read_node
from webhook.core.cluster.nodes import Nodes
from webhook.core.images import (
    NO_IMAGES,
    ImageConfig,
    ImageQuery,
    Images,
    LookupRules,
    Unavailable,
    escape_dollars,
)
from webhook.core.pod import PodSpec
from webhook.core.policy.image_config import ImageConfigSettings


@pytest.mark.parametrize(
    ("glob", "host", "expected"),
    [
        ("quay.io", "quay.io", True),
        ("quay.io", "xquay.io", False),
        ("quay.io", "quayxio", False),
        ("quay.io", "quay.io.evil.example", False),
        ("quay.io", "quay.io:443", False),
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "a.example.com:5000", False),
        ("*.example.com:*", "a.example.com:5000", True),
        ("*.example.com:*", "a.example.com", False),
        ("*", "anything.example", True),
        ("*", "anything.example:5000", False),
        ("*:*", "anything.example:5000", True),
        ("[fd00::1]", "[fd00::1]", True),
        ("[fd00::1]", "[fd00::1]:5000", False),
        ("*", "[fd00::1]", True),
    ],
)
def test_registry_glob_allows_matching_hosts(glob: str, host: str, expected: bool) -> None:
    assert LookupRules((glob,)).allows(host) is expected
    assert LookupRules(("other.example", glob)).allows(host) is expected


def test_names_is_true_only_for_hosts_without_a_wildcard() -> None:
    rules = LookupRules(("127.0.0.1:5000", "127.*"), (("docker.io", "[::1]:5000/hub"),))
    assert rules.names_exactly("127.0.0.1:5000")
    assert rules.names_exactly("[::1]:5000")
    for host in ("127.0.0.1", "127.0.0.2", "docker.io", "[::1]"):
        assert not rules.names_exactly(host)


def test_policy_without_lookup_has_no_rules() -> None:
    assert ImageConfigSettings().rules is None
    assert ImageConfigSettings(registries=("*",)).rules is None
    said = ImageConfigSettings(lookup="Registry", registries=("*",), mirrors={"b": "c", "a": "d"})
    assert said.rules == LookupRules(("*",), (("a", "d"), ("b", "c")))
    assert said.rules.mirror_of("b") == "c"
    assert said.rules.mirror_of("c") is None


def test_missing_image_is_recorded_once() -> None:
    known, other = (ImageQuery(name, LookupRules()) for name in "ab")
    images = Images({known: ImageConfig(("/a",), ())})
    assert images.find(known) == ImageConfig(("/a",), ())
    assert images.find(other) == images.find(other) == Unavailable("the image was not looked up")
    assert list(images.missing) == [other]
    assert NO_IMAGES == {}


# The architectures of a query.

AMD = node("amd", labels={"kubernetes.io/arch": "amd64", "disk": "ssd"})
ARM = node("arm", labels={"kubernetes.io/arch": "arm64"})
BARE = node("bare", labels={"disk": "old"})


@pytest.mark.parametrize(
    ("nodes", "spec", "expected"),
    [
        ([], {}, ""),
        ([AMD], {}, "amd64"),
        ([AMD, ARM], {}, "amd64 arm64"),
        ([AMD, ARM], {"nodeSelector": {"disk": "ssd"}}, "amd64"),
        ([AMD, ARM], {"nodeName": "arm"}, "arm64"),
        ([AMD, ARM, BARE], {}, ""),
        ([AMD, BARE], {"nodeSelector": {"disk": "old"}}, ""),
        ([], {"nodeSelector": {"kubernetes.io/arch": "s390x"}}, "s390x"),
        ([AMD], {"nodeSelector": {"disk": "none"}}, ""),
    ],
)
def test_architectures_are_those_of_nodes_that_the_pod_could_land_on(
    nodes: list[Json], spec: Json, expected: str
) -> None:
    found: PodSpec = make_request(pod(**spec), "ci").pod.spec
    assert Nodes(map(read_node, nodes)).architectures(found) == set(expected.split())


# Texts from images in a pod's command.


@given(st.text("$(){}A a", max_size=12))
def test_escaped_text_survives_the_kubelets_expansion(text: str) -> None:
    assert kubelet_expands(escape_dollars(text)) == text
