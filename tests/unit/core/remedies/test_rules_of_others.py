"""What the admission rules of others see of each remedy and delivery.

The rules are those of Kyverno's public policies that read what podsettle adds, in the words of this
project, under the names of the policies. A pod that meets all of them is settled. The rules that it
then breaks are those that the pages name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.support.factories import (
    Json,
    decide_pod,
    node,
    patched,
    pod,
    policy,
    reasons,
    view,
)
from tests.support.paths import DOCS
from webhook.core.admission.decider import OperatorSettings
from webhook.core.defects.versions import Version

RESOURCES = {
    "requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"},
    "limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"},
}
STRICT = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "capabilities": {"drop": ["ALL", "CAP_NET_RAW"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
ALLOWED_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral"),
    *("persistentVolumeClaim", "projected", "secret"),
}


def containers(document: Json) -> Iterator[Json]:
    yield from document["spec"].get("initContainers") or ()
    yield from document["spec"]["containers"]


def each(holds: Callable[[Json], object]) -> Callable[[Json], bool]:
    """Return a rule that holds if it holds for each container."""
    return lambda document: all(map(holds, containers(document)))


def secured(holds: Callable[[Json], object]) -> Callable[[Json], bool]:
    """Return a rule about the security contexts of all containers."""
    return each(lambda found: holds(found.get("securityContext") or {}))


def drops(security: Json) -> set[str]:
    return {name.removeprefix("CAP_") for name in security.get("capabilities", {}).get("drop", ())}


def has_limited_volumes(document: Json) -> bool:
    """Return whether each emptyDir has a size limit, or its containers limit their storage."""
    volumes = document["spec"].get("volumes") or ()
    open_ended = {
        v["name"] for v in volumes if "sizeLimit" not in v.get("emptyDir", {"sizeLimit": 1})
    }
    return all(
        "ephemeral-storage" in found.get("resources", {}).get("limits", {})
        for found in containers(document)
        if any(mount["name"] in open_ended for mount in found.get("volumeMounts") or ())
    )


RULES: dict[str, Callable[[Json], bool]] = {
    "restrict-volume-types": lambda document: all(
        set(volume) - {"name"} <= ALLOWED_VOLUMES
        for volume in document["spec"].get("volumes") or ()
    ),
    "disallow-latest-tag": each(
        lambda found: ":" in found["image"] and not found["image"].endswith(":latest")
    ),
    "require-image-checksum": each(lambda found: "@" in found["image"]),
    "restrict-image-registries": each(lambda found: found["image"].startswith("allowed.example/")),
    "require-drop-all": secured(lambda security: "ALL" in drops(security)),
    "require-drop-cap-net-raw": secured(lambda security: "NET_RAW" in drops(security)),
    "require-non-root-groups": secured(lambda security: security.get("runAsGroup", 0) > 0),
    "require-run-as-nonroot": secured(lambda security: security.get("runAsNonRoot") is True),
    "require-run-as-non-root-user": secured(lambda security: security.get("runAsUser") != 0),
    "disallow-privilege-escalation": secured(
        lambda security: security.get("allowPrivilegeEscalation") is False
    ),
    "restrict-seccomp-strict": secured(
        lambda security: security.get("seccompProfile") == {"type": "RuntimeDefault"}
    ),
    "require-ro-rootfs": secured(lambda security: security.get("readOnlyRootFilesystem") is True),
    "require-pod-requests-limits": each(lambda found: found.get("resources") == RESOURCES),
    "require-cpu-limits": each(lambda found: "cpu" in found.get("resources", {}).get("limits", {})),
    "require-emptydir-requests-limits": has_limited_volumes,
    "limit-containers-per-pod": lambda document: len(document["spec"]["containers"]) < 5,
}

ABOUT_IMAGES = {"disallow-latest-tag", "require-image-checksum", "restrict-image-registries"}
GATE: Json = {"waitFor": [{"dns": "a.b"}]}


def wrapping(delivery: str) -> Json:
    return {
        "postInitSleep": {"containers": ["*"], "delivery": delivery},
        "openFiles": {"soft": 1024, "initContainers": ["*"], "delivery": delivery},
    }


CASES: dict[str, tuple[Json, set[str]]] = {
    "fields": (
        {
            "seLinuxChangePolicy": "Recursive",
            "fsGroupChangePolicy": "OnRootMismatch",
            "retryInitExit255": {"initContainers": ["prepare"]},
        },
        set(),
    ),
    "Shell": (wrapping("Shell"), set()),
    "ImageVolume": (wrapping("ImageVolume"), {"restrict-volume-types"}),
    "Binary": (wrapping("Binary"), ABOUT_IMAGES),
    "startGate": ({"startGate": GATE}, ABOUT_IMAGES),
    "kubeletGate": ({"kubeletGate": {}}, ABOUT_IMAGES),
    "both gates": ({"startGate": GATE, "kubeletGate": {}}, ABOUT_IMAGES),
}
"""The remedies, and the rules that they break if the helper's image breaks all rules of images."""


SECURED: Json = {
    "securityContext": STRICT,
    "resources": RESOURCES,
    "image": f"allowed.example/app:1@sha256:{'1' * 64}",
}
STRICT_POD = pod(
    {"name": "prepare", "command": ["sh", "-c", "x"], **SECURED},
    containers=[{"name": "main", "command": ["sh", "-c", "x"], **SECURED}],
    restartPolicy="Never",
    securityContext={"fsGroup": 5},
    volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
)


def broken(document: Json) -> set[str]:
    return {name for name, holds in RULES.items() if not holds(document)}


def settle(remedies: Json, image: str, version: Version | None) -> tuple[Json, list[str]]:
    """Return the pod as it is settled with an image of the helper, and the reasons."""
    seen = view(policy(remedies=remedies), nodes=[node("n", "cri-o://1.33.12", "v1.36.0")])
    options = OperatorSettings(None, image, linger_version=version)
    decision = decide_pod(STRICT_POD, seen, settings=options)
    return patched(STRICT_POD, decision), reasons(decision)


def test_pod_meets_all_rules_before_it_is_settled() -> None:
    assert broken(STRICT_POD) == set()


@pytest.mark.parametrize("case", CASES)
def test_remedy_breaks_the_rules_that_the_page_names_and_no_other(case: str) -> None:
    remedies, expected = CASES[case]
    after, given = settle(remedies, "elsewhere.example/linger:latest", Version(0, 2, 0))
    assert {reason.rpartition(": ")[2] for reason in given} == {"Applied"}
    assert broken(after) == expected
    page = (DOCS / "why-not.md").read_text().partition("### Rules of your own")[2]
    assert all(f"`{name}`" in page for name in expected)


@pytest.mark.parametrize("case", CASES)
def test_image_that_the_page_advises_breaks_no_rule_and_is_used_by_all_remedies(case: str) -> None:
    remedies, expected = CASES[case]
    advised = re.search(r"`lingerImage: IMAGE(\S+@sha256:)…`", (DOCS / "why-not.md").read_text())
    assert advised
    image = f"allowed.example/linger{advised[1]}{'0' * 64}"
    after, given = settle(remedies, image, None)
    assert {reason.rpartition(": ")[2] for reason in given} == {"Applied"}
    assert broken(after) == expected - ABOUT_IMAGES


def test_digest_alone_leaves_out_what_only_newer_helpers_have() -> None:
    remedies = {**wrapping("Binary"), "startGate": GATE, "kubeletGate": {}}
    _, given = settle(remedies, f"allowed.example/linger@sha256:{'0' * 64}", None)
    assert sorted({reason.rpartition(": ")[2] for reason in given}) == ["Applied", "HelperTooOld"]
