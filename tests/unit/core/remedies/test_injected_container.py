"""The security context of the init containers that podsettle adds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.factories import Json, container, mutate_pod, pod, policy, qos, view
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
    ("of_container", "of_pod", "user", "group"),
    [
        ({"runAsUser": 5, "runAsGroup": 6}, None, 5, 6),
        ({"runAsUser": 5, "runAsGroup": 6}, {"fsGroup": 9}, 5, 6),
        ({"runAsUser": 5, "runAsGroup": 6}, {"runAsUser": 7}, None, 6),
        ({"runAsUser": 5, "runAsGroup": 6}, {"runAsUser": 7, "runAsGroup": 8}, None, None),
        ({"runAsGroup": 6}, {"runAsGroup": 0}, None, 6),
        ({"runAsUser": 0, "runAsGroup": 0}, None, None, None),
        ({}, {"runAsUser": 7, "runAsGroup": 8}, None, None),
        (None, None, None, None),
    ],
)
def test_injected_container_has_the_user_and_group_of_its_template_if_the_pod_has_none(
    name: str, of_container: Any, of_pod: Any, user: int | None, group: int | None
) -> None:
    (found,) = injected(with_security(of_container, of_pod), name)
    assert (found.get("runAsUser"), found.get("runAsGroup")) == (user, group)
    assert found["runAsNonRoot"] is True


@pytest.mark.parametrize("name", REMEDIES)
@pytest.mark.parametrize(
    ("of_container", "of_pod", "user", "non_root"),
    [
        (None, {"runAsUser": 0}, None, None),
        ({"runAsUser": 5}, {"runAsUser": 0}, 5, True),
        ({"runAsUser": 5, "runAsNonRoot": True}, {"runAsUser": 0}, 5, True),
        ({"runAsUser": 5}, {"runAsUser": 0, "runAsNonRoot": True}, 5, True),
        ({"runAsNonRoot": False}, {"runAsUser": 0, "runAsNonRoot": True}, None, False),
        (None, {"runAsUser": 1}, None, True),
    ],
)
def test_injected_container_is_non_root_unless_the_pod_and_its_container_are_root(
    name: str, of_container: Any, of_pod: Any, user: int | None, non_root: bool | None
) -> None:
    """The kubelet does not start a container with runAsNonRoot whose user is root."""
    (found,) = injected(with_security(of_container, of_pod), name)
    assert (found.get("runAsUser"), found.get("runAsNonRoot")) == (user, non_root)


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


# The rules in words. Names: kyverno/policies `other/require-non-root-groups`,
# `best-practices/require-drop-cap-net-raw`, `pod-security/restricted/require-run-as-non-root-user`.


def securities(document: Json) -> list[Json]:
    spec = document["spec"]
    each = [*spec.get("initContainers", []), *spec["containers"]]
    return [found.get("securityContext") or {} for found in each]


def has_non_root_groups(document: Json) -> bool:
    """The pod sets a group above 0 and no container sets 0, or each container sets one above 0."""
    of_pod = (document["spec"].get("securityContext") or {}).get("runAsGroup")
    groups = [each.get("runAsGroup") for each in securities(document)]
    inherits = bool(of_pod) and all(group is None or group > 0 for group in groups)
    return inherits or all(groups)


def drops_net_raw(document: Json) -> bool:
    """Each container names NET_RAW, in any case, with or without CAP_, in what it drops."""
    dropped = [
        {name.upper() for name in (each.get("capabilities") or {}).get("drop") or ()}
        for each in securities(document)
    ]
    return all(names & {"NET_RAW", "CAP_NET_RAW"} for names in dropped)


def has_no_root_user(document: Json) -> bool:
    users = [document["spec"].get("securityContext") or {}, *securities(document)]
    return all(each.get("runAsUser") != 0 for each in users)


def is_restricted(document: Json) -> bool:
    """PodSecurity `restricted`, as far as a container's own fields decide."""
    return has_no_root_user(document) and all(
        each.get("allowPrivilegeEscalation") is False
        and "ALL" in each["capabilities"]["drop"]
        and each.get("runAsNonRoot") is True
        and each.get("seccompProfile")
        for each in securities(document)
    )


RULES = [has_non_root_groups, drops_net_raw, has_no_root_user, is_restricted]
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
    kept = [rule for rule in RULES if rule is not is_restricted or strict]
    assert [rule.__name__ for rule in kept if rule(before) and not rule(after)] == []
