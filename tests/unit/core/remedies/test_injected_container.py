"""The init containers that podsettle adds: their security context and resources.

RULES are those of Kyverno's public policies that read security contexts, in the words of this
project, under the names of the policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.factories import (
    Json,
    container,
    mutate_pod,
    pod,
    policy,
    qos,
    view,
)
from tests.support.post_init_sleep import EQUAL, SMALL
from webhook.core.constants import OWN_CONTAINERS
from webhook.core.policy.snapshot import Snapshot

REMEDIES: dict[str, Json] = {
    "postInitSleep": {"delivery": "Binary", "containers": ["*"]},
    "openFiles": {"soft": 4096, "delivery": "Binary"},
    "kubeletGate": {},
    "startGate": {"waitFor": [{"dns": "a"}]},
}
RESTRICTED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def seen(*names: str) -> Snapshot:
    return view(policy(remedies={name: REMEDIES[name] for name in names or REMEDIES}))


def with_security(of_container: Any, of_pod: Any = None) -> Json:
    each = {"securityContext": of_container}
    return pod(
        container("prepare", "/prepare", **each),
        containers=[container("main", "/main", **each)],
        restartPolicy="Never",
        securityContext=of_pod,
    )


def injected(document: Json, *names: str) -> list[Json]:
    after = mutate_pod(document, seen(*names))["spec"]["initContainers"]
    found = [each["securityContext"] for each in after if each["name"] in OWN_CONTAINERS]
    assert found
    return found


@pytest.mark.parametrize("name", REMEDIES)
@pytest.mark.parametrize(
    ("drop", "expected"),
    [
        (None, ["ALL"]),
        (["ALL"], ["ALL"]),
        (["ALL", "NET_RAW"], ["ALL", "NET_RAW"]),
        (["NET_RAW", "all", "NET_RAW", "mknod"], ["ALL", "NET_RAW", "mknod"]),
        (["CAP_NET_RAW"], ["ALL", "CAP_NET_RAW"]),
        (["x" * 1_000], ["ALL"]),
        ([f"c{n}" for n in range(1_000)], ["ALL"]),
    ],
)
def test_injected_container_drops_what_its_template_drops_and_all(
    name: str, drop: list[str] | None, expected: list[str]
) -> None:
    (found,) = injected(with_security({"capabilities": {"drop": drop}}), name)
    assert found["capabilities"] == {"drop": expected}


@pytest.mark.parametrize("name", REMEDIES)
@pytest.mark.parametrize(
    ("of_container", "of_pod", "user", "group", "non_root"),
    [
        ({"runAsUser": 5, "runAsGroup": 6}, None, 5, 6, True),
        ({"runAsUser": 5, "runAsGroup": 6}, {"fsGroup": 9}, 5, 6, True),
        ({"runAsUser": 5, "runAsGroup": 6}, {"runAsUser": 7}, None, 6, True),
        ({"runAsUser": 5, "runAsGroup": 6}, {"runAsUser": 7, "runAsGroup": 8}, None, None, True),
        ({"runAsGroup": 6}, {"runAsGroup": 0}, None, 6, True),
        ({"runAsUser": 0, "runAsGroup": 0}, None, None, None, True),
        ({}, {"runAsUser": 7, "runAsGroup": 8}, None, None, True),
        (None, None, None, None, True),
        # The kubelet does not start a container with runAsNonRoot whose user is root.
        (None, {"runAsUser": 0}, None, None, None),
        ({"runAsUser": 5}, {"runAsUser": 0}, 5, None, True),
        ({"runAsUser": 5, "runAsNonRoot": True}, {"runAsUser": 0}, 5, None, True),
        ({"runAsUser": 5}, {"runAsUser": 0, "runAsNonRoot": True}, 5, None, True),
        ({"runAsNonRoot": False}, {"runAsUser": 0, "runAsNonRoot": True}, None, None, False),
        (None, {"runAsUser": 1}, None, None, True),
    ],
)
def test_injected_container_has_the_user_and_group_of_its_template_and_is_not_root(
    name: str,
    of_container: Any,
    of_pod: Any,
    user: int | None,
    group: int | None,
    non_root: bool | None,
) -> None:
    (found,) = injected(with_security(of_container, of_pod), name)
    assert [found.get(key) for key in ("runAsUser", "runAsGroup", "runAsNonRoot")] == [
        *(user, group, non_root)
    ]


CPU = {"limits": {"cpu": "1"}}
QOS: list[tuple[Any, Any, Any, str]] = [
    (None, None, None, "BestEffort"),
    ({}, {"limits": {}}, {"requests": None}, "BestEffort"),
    ({"limits": {"ephemeral-storage": "1Gi"}}, None, None, "BestEffort"),
    (EQUAL, EQUAL, EQUAL, "Guaranteed"),
    ({key: SMALL | {"nvidia.com/gpu": 1} for key in EQUAL}, EQUAL, EQUAL, "Guaranteed"),
    (EQUAL, None, None, "Burstable"),
    (None, EQUAL, EQUAL, "Burstable"),
    ({"requests": {"cpu": "1m"}}, EQUAL, EQUAL, "Burstable"),
    (EQUAL, {"limits": {"memory": "1Gi"}}, CPU, "Burstable"),
]
"""The resources of two init containers and of the main one, and the QoS class of the pod."""


@pytest.mark.parametrize("name", REMEDIES)
def test_injected_container_keeps_the_qos_class_with_the_resources_of_its_template(
    name: str,
) -> None:
    for first, second, main, expected in QOS:
        before = pod(
            container("a", "/a", resources=first),
            container("b", "/b", resources=second),
            containers=[container("main", "/main", resources=main), container("side")],
            restartPolicy="Never",
        )
        if main is EQUAL:
            before["spec"]["containers"].pop()
        after = mutate_pod(before, seen(name))
        case = (first, second, main)
        assert qos(before) == qos(after) == expected, case
        (own,) = (
            each for each in after["spec"]["initContainers"] if each["name"] in OWN_CONTAINERS
        )
        template = first if name == "postInitSleep" else main
        copied = {key: dict(each) for key, each in (template or {}).items() if each}
        for each in copied.values():
            each.pop("nvidia.com/gpu", None)
        assert {key: each for key, each in own.get("resources", {}).items() if each} == copied, case


def containers(document: Json) -> Iterator[Json]:
    yield from document["spec"].get("initContainers") or ()
    yield from document["spec"]["containers"]


def secured(holds: Callable[[Json], object]) -> Callable[[Json], bool]:
    """Return a rule that holds if it holds for the security context of each container."""
    return lambda document: all(
        holds(found.get("securityContext") or {}) for found in containers(document)
    )


def drops(security: Json) -> set[str]:
    dropped = (security.get("capabilities") or {}).get("drop") or ()
    return {name.upper().removeprefix("CAP_") for name in dropped}


def has_non_root_groups(document: Json) -> bool:
    """The pod sets a group above 0 and no container sets 0, or each container sets one above 0."""
    of_pod = (document["spec"].get("securityContext") or {}).get("runAsGroup")
    securities = [each.get("securityContext") or {} for each in containers(document)]
    groups = [each.get("runAsGroup") for each in securities]
    inherits = bool(of_pod) and all(group is None or group > 0 for group in groups)
    return inherits or all(groups)


def has_no_root_user(document: Json) -> bool:
    secured = (document["spec"], *containers(document))
    return all((each.get("securityContext") or {}).get("runAsUser") != 0 for each in secured)


RULES = {
    "require-drop-all": secured(lambda security: "ALL" in drops(security)),
    "require-drop-cap-net-raw": secured(lambda security: "NET_RAW" in drops(security)),
    "require-non-root-groups": has_non_root_groups,
    "require-run-as-nonroot": secured(lambda security: security.get("runAsNonRoot") is True),
    "require-run-as-non-root-user": has_no_root_user,
    "disallow-privilege-escalation": secured(
        lambda security: security.get("allowPrivilegeEscalation") is False
    ),
    "restrict-seccomp-strict": secured(
        lambda security: security.get("seccompProfile") == {"type": "RuntimeDefault"}
    ),
}


def broken(document: Json) -> set[str]:
    return {name for name, holds in RULES.items() if not holds(document)}


ALONE = ["require-non-root-groups", "require-drop-cap-net-raw", "require-run-as-non-root-user"]
PROFILE = {
    *("require-run-as-non-root-user", "require-run-as-nonroot", "require-drop-all"),
    *("disallow-privilege-escalation", "restrict-seccomp-strict"),
}
"""PodSecurity `restricted`, as far as a container's own fields decide."""
IDS = st.sampled_from([None, 0, 1, 1000])
OWN = st.fixed_dictionaries(
    {"runAsUser": IDS, "runAsGroup": IDS},
    optional={
        "capabilities": st.fixed_dictionaries(
            {"drop": st.lists(st.sampled_from(["ALL", "NET_RAW", "cap_net_raw", "CHOWN"]))}
        )
    },
)


@given(
    own=st.tuples(OWN, OWN, OWN), of_pod=OWN.map(lambda each: {**each, "capabilities": None}),
    strict=st.booleans(),
)  # fmt: skip
def test_pod_that_keeps_a_rule_keeps_it_with_the_injected_containers(
    own: tuple[Json, Json, Json], of_pod: Json, strict: bool
) -> None:
    def made(security: Json) -> Json:
        fields = {key: value for key, value in security.items() if value is not None}
        if not strict:
            return fields
        drops = (fields.get("capabilities") or {}).get("drop") or []
        return RESTRICTED | fields | {"capabilities": {"drop": ["ALL", *drops]}}

    first, second, main = (made(each) for each in own)
    before = pod(
        container("a", "/a", securityContext=first),
        container("b", "/b", securityContext=second),
        containers=[container("main", "/main", securityContext=main)],
        restartPolicy="Never",
        securityContext={key: value for key, value in of_pod.items() if value is not None},
    )
    after = mutate_pod(before, seen())
    broken_before, broken_after = broken(before), broken(after)
    assert [rule for rule in ALONE if rule in broken_after - broken_before] == []
    assert broken_before & PROFILE or not broken_after & PROFILE
