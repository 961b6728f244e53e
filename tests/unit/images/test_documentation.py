"""Tests that docs/policies.md matches the code."""

from __future__ import annotations

import re

import pytest

from tests.support.factories import decide_pod, namespace, pod, reasons, view
from tests.support.markdown import Page
from tests.support.paths import DOCS
from webhook.core.admission.decider import OperatorSettings
from webhook.core.image_reference import parse_reference
from webhook.core.images import ImageConfig, ImageQuery, LookupRules, Unavailable
from webhook.core.policy.model import parse_policy
from webhook.images.errors import LookupFailedError
from webhook.images.lookup import MAX_CACHED_BYTES, LookupLimits
from webhook.images.registry import registry_of
from webhook.server.reviews.handler import IMAGE_LOOKUP_SHARE
from webhook.server.reviews.request import answer_seconds

PAGE = Page(DOCS / "policies.md")
(DOCUMENT,) = PAGE.policies
POLICY = parse_policy(DOCUMENT)
NAMESPACE = namespace("woodpecker", {"kubernetes.io/metadata.name": "woodpecker"})
# A Woodpecker plugin: no command, and settings in its environment.
PLUGIN = pod(containers=[{"name": "publish", "image": "a.example.com/p"}], restartPolicy="Never")


def rules() -> LookupRules:
    found = POLICY.spec.image_config.rules
    assert found is not None
    return found


def test_policy_of_the_page_allows_the_registries_that_the_page_names() -> None:
    mirrored = registry_of(parse_reference("busybox"), rules())
    assert f"`{mirrored.host}/{mirrored.repository}`" in PAGE.text
    assert registry_of(parse_reference("a.example.com/b"), rules()).host == "a.example.com"
    for image in ("a.example.com:5000/b", "gcr.io/b"):
        with pytest.raises(LookupFailedError, match="is not among the policy's imageConfig"):
            registry_of(parse_reference(image), rules())


def test_times_and_limits_on_the_page_match_the_code() -> None:
    deadline = answer_seconds(b"timeout=2s")
    for_images = deadline * IMAGE_LOOKUP_SHARE
    section = " ".join(PAGE.section("the-first-pod-may-stay-unwrapped").split())
    share = f"and uses at most {for_images:.2g} s of this time for look-ups"
    assert f"answers within {deadline:.2g} s, {share}" in section
    assert f"for up to {LookupLimits().step_timeout:.2g} s" in section
    assert f"at most {LookupLimits().max_cache_entries} results" in section
    assert f"{MAX_CACHED_BYTES >> 20} MiB" in section
    assert f"| a failure | {LookupLimits().failure_ttl:.2g} s |" in section
    assert f"the registry did not answer within {for_images:.2g} s" in " ".join(PAGE.text.split())


def test_policy_of_the_page_wraps_a_container_without_a_command_once_its_image_is_known() -> None:
    seen = view(POLICY, namespaces=[NAMESPACE])
    settings = OperatorSettings(linger_image="linger")
    first = decide_pod(PLUGIN, seen, namespace="woodpecker", settings=settings)
    assert reasons(first) == ["publish: ImageConfigUnavailable"]
    (lacking,) = first.missing_images
    known: dict[ImageQuery, ImageConfig | Unavailable] = {
        lacking: ImageConfig(("/bin/plugin",), ("--run",))
    }
    (outcome,) = decide_pod(
        PLUGIN, seen, namespace="woodpecker", settings=settings, images=known
    ).outcomes
    assert outcome.changed
    said = re.search(r"`Applied … (around what its image) … (starts)`", PAGE.text)
    assert said is not None
    assert all(part in outcome.message for part in said.groups())
