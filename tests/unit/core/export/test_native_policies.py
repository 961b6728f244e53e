"""Tests of native policies: what is exported, what is left out, and which policy comes first.

What the expressions do to pods is tested on a real API server, in `tests/e2e/export`.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from tests.support.factories import Json, node, policy, runtime_class, view
from tests.support.remedy_settings import settings_of
from tests.support.strategies import TEXTS_OF_SETTINGS
from webhook import __version__
from webhook.core.defects.versions import Version
from webhook.core.export.native_policies import Export, export
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.validation_errors import InvalidPolicyError
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.native import Native

FS_GROUP = {"fsGroupChangePolicy": "OnRootMismatch"}
NATIVE = {name: each.native for name, each in REMEDIES.items() if isinstance(each.native, Native)}


def exported(*policies: SettlePolicy, seen: Snapshot | None = None, **options: Any) -> Export:
    whole = seen or view(*policies)
    return export(whole, "podsettle-system", **options)


def documents(found: Export, kind: str) -> list[Json]:
    return [each for policy in found.policies for each in policy.documents if each["kind"] == kind]


def variables(found: Export, name: str) -> dict[str, str]:
    """Return the variables of the native policy of a SettlePolicy."""
    (written,) = (each for each in found.policies if each.source.metadata.name == name)
    return {each["name"]: each["expression"] for each in written.documents[0]["spec"]["variables"]}


def left_out(found: Export) -> dict[tuple[str, str], str]:
    return {(each.policy, each.remedy): each.why for each in found.not_native}


def valid_policy(name: str, chosen: Any) -> SettlePolicy | None:
    try:
        return policy(remedies={name: chosen})
    except InvalidPolicyError:
        return None


@given(st.data())
@pytest.mark.parametrize("name", NATIVE)
def test_effect_has_the_phrase_of_its_own_remedy_alone(name: str, data: st.DataObject) -> None:
    """By its phrase, a native policy recognises a clause that another one has written."""
    chosen = data.draw(settings_of(REMEDIES[name], TEXTS_OF_SETTINGS))
    valid = valid_policy(name, chosen)
    if valid is None:
        reject()
    effect = REMEDIES[name].effect(valid.spec.settings()[name])
    assert [other for other, each in NATIVE.items() if each.phrase in effect] == [name]


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("postInitSleep", {"when": "Always", "delivery": "Shell"}),
        ("retryInitExit255", {"when": "Always", "initContainers": ["a"]}),
        ("openFiles", {"soft": 1024}),
        ("startGate", {"waitFor": [{"dns": "db"}]}),
        ("kubeletGate", {}),
    ],
)
@pytest.mark.parametrize("guard", [False, True])
def test_remedy_without_a_native_form_is_left_out_by_name_and_the_others_are_exported(
    name: str, chosen: Json, guard: bool
) -> None:
    images = {"lookup": "Registry", "registries": ["quay.io"]}
    found = exported(
        policy("p", remedies={**FS_GROUP, name: chosen}, imageConfig=images), guard=guard
    )
    assert left_out(found) == {("p", name): REMEDIES[name].native}
    assert "fsGroupChangePolicy" in variables(found, "p")
    assert name not in variables(found, "p")
    assert exported(policy("p", remedies={name: chosen}), guard=guard).policies == ()


@pytest.mark.parametrize("guard", [False, True])
def test_pod_selector_is_the_object_selector_of_the_native_policy(guard: bool) -> None:
    """Without it, the native policy would act on all pods of its namespaces."""
    selector = {
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}],
    }
    kind = f"{'Validating' if guard else 'Mutating'}AdmissionPolicy"
    for chosen, expected in ((selector, selector), ({}, None)):
        found = exported(policy("p", remedies=FS_GROUP, podSelector=chosen), guard=guard)
        (written,) = documents(found, kind)
        assert written["spec"]["matchConstraints"].get("objectSelector") == expected


@pytest.mark.parametrize(
    ("runtimes", "acts"),
    [
        ([], True),
        (["containerd://2.1.0"], True),
        (["containerd://2.1.0", "cri-o://1.36.0"], True),
        (["cri-o://1.36.0"], False),
    ],
)
def test_nodes_decide_for_all_pods_whether_a_remedy_is_exported(
    runtimes: list[str], acts: bool
) -> None:
    nodes = [node(f"n{i}", runtime) for i, runtime in enumerate(runtimes)]
    volatile = {"name": "overlay-volatile"}
    by_nodes = policy("p", remedies={"runtimeClass": volatile | {"when": "NodesNeedIt"}})
    found = exported(seen=view(by_nodes, nodes=nodes))
    (decision,) = found.by_nodes
    assert (decision.policy, decision.remedy) == ("p", "runtimeClass")
    assert decision.is_needed == acts == bool(found.policies)
    always = exported(seen=view(policy("p", remedies={"runtimeClass": volatile}), nodes=nodes))
    assert not always.by_nodes
    assert always.policies


@pytest.mark.parametrize(
    ("runtime", "is_needed"), [("cri-o://1.33.12", True), ("cri-o://1.36.0", False)]
)
def test_remedy_that_is_not_native_is_left_out_unless_no_node_needs_it(
    runtime: str, is_needed: bool
) -> None:
    by_nodes = policy("p", remedies={"postInitSleep": {}})
    found = exported(seen=view(by_nodes, nodes=[node("a", runtime)]))
    assert bool(found.not_native) == is_needed
    assert [each.is_needed for each in found.by_nodes] == ([] if is_needed else [False])


@pytest.mark.parametrize(
    ("server", "is_native"), [(None, True), (Version(1, 32), False), (Version(1, 33), True)]
)
def test_guard_of_a_field_needs_an_api_server_that_has_it(
    server: Version | None, is_native: bool
) -> None:
    chosen = {"seLinuxChangePolicy": "Recursive"}
    found = exported(seen=view(policy("p", remedies=chosen), server=server), guard=True)
    assert bool(found.policies) == is_native


def test_class_whose_handler_no_node_has_is_left_out() -> None:
    fast = policy("p", remedies={"runtimeClass": {"name": "fast"}})
    classes = [runtime_class("fast", selector={"disk": "ssd"})]
    without = node("n", labels={"disk": "ssd"}, handlers=[""])
    found = exported(seen=view(fast, classes=classes, nodes=[without]))
    assert "no node lists the handler 'fast'" in left_out(found)["p", "runtimeClass"]
    others = [without, node("m", labels={"disk": "ssd"}, handlers=["fast"])]
    assert exported(seen=view(fast, classes=classes, nodes=others)).policies


def test_remedy_yields_to_earlier_policies_of_the_same_action_that_set_it() -> None:
    found = exported(
        policy("low", remedies=FS_GROUP, priority=-1),
        policy("high", remedies=FS_GROUP, priority=1, podSelector={"matchLabels": {"a": "b"}}),
        policy("other", remedies={"seLinuxChangePolicy": "Recursive"}, priority=2),
        policy("audit", remedies=FS_GROUP, priority=3, action="Audit"),
    )
    low = variables(found, "low")
    assert low["coveredByHigh"] == 'variables.labels[?"a"] == optional.of("b")'
    assert "!variables.coveredByHigh" in low["fsGroupChangePolicy"]
    for name in ("high", "other", "audit"):
        assert not any("coveredBy" in key for key in variables(found, name)), name
    assert [key for key in low if key.startswith("coveredBy")] == ["coveredByHigh"]


def test_policies_that_are_not_exported_come_first_too() -> None:
    whole = [policy("a", remedies=FS_GROUP), policy("b", remedies=FS_GROUP)]
    found = exported(*whole, names=["b"])
    assert [each.source.metadata.name for each in found.policies] == ["b"]
    assert "coveredByA" in variables(found, "b")


def test_policies_whose_names_give_one_variable_are_kept_apart() -> None:
    found = exported(*(policy(name, remedies=FS_GROUP) for name in ("a-b", "a.b", "z")))
    last = variables(found, "z")
    assert {"coveredByAB", "coveredByAB_1"} <= last.keys()
    assert "!variables.coveredByAB\n&& !variables.coveredByAB_1" in last["fsGroupChangePolicy"]


@pytest.mark.parametrize("other", ["slow", "fast"])
def test_remedy_leaves_a_pod_to_a_policy_with_another_class(other: str) -> None:
    """Two native policies run in any order, and the class that is set first stays."""
    found = exported(
        policy("relabel", remedies={"skipSELinuxRelabel": {"runtimeClassName": "fast"}}),
        policy("class", remedies={"runtimeClass": {"name": other}}, priority=-1),
    )
    assert ("coveredByClass" in variables(found, "relabel")) == (other == "slow")
    assert "coveredByRelabel" not in variables(found, "class")


def test_missing_class_makes_the_api_server_skip_the_policy() -> None:
    found = exported(policy("p", remedies={**FS_GROUP, "runtimeClass": {"name": "fast"}}))
    (written,) = documents(found, "MutatingAdmissionPolicy")
    (binding,) = documents(found, "MutatingAdmissionPolicyBinding")
    assert written["spec"]["paramKind"] == {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
    assert binding["spec"]["paramRef"] == {"name": "fast", "parameterNotFoundAction": "Allow"}


def test_audit_policy_becomes_a_validating_policy_that_denies_nothing() -> None:
    found = exported(policy("p", remedies=FS_GROUP, action="Audit"), api_version="v1beta1")
    (written,) = documents(found, "ValidatingAdmissionPolicy")
    (binding,) = documents(found, "ValidatingAdmissionPolicyBinding")
    assert written["apiVersion"] == "admissionregistration.k8s.io/v1"
    assert written["spec"]["failurePolicy"] == "Ignore"
    assert binding["spec"]["validationActions"] == ["Audit", "Warn"]


def test_guard_reports_each_mutating_policy_and_changes_nothing() -> None:
    found = exported(
        policy("p", remedies=FS_GROUP),
        policy("audit", remedies=FS_GROUP, action="Audit"),
        guard=True,
    )
    (written,) = found.policies
    assert [(each.policy, each.remedy) for each in found.not_native] == [("audit", "guard")]
    assert [each["kind"] for each in written.documents] == [
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    (first, binding) = written.documents
    assert first["metadata"]["name"] == binding["spec"]["policyName"] == "p.podsettle.dev.guard"
    assert binding["spec"]["validationActions"] == ["Audit", "Warn"]
    (validation,) = first["spec"]["validations"]
    assert validation["message"].startswith(
        "the pod is not settled: by remedy fsGroupChangePolicy of "
    )


def test_bindings_select_the_namespaces_that_a_policy_covers() -> None:
    name = "kubernetes.io/metadata.name"
    cases: list[tuple[Json | None, Json]] = [
        (None, {"p.podsettle.dev.opt-in": {"matchLabels": {"podsettle.dev/policy": "p"}}}),
        ({}, {"p.podsettle.dev": {}}),
        (
            {"matchLabels": {name: "kube-system"}},
            {
                "p.podsettle.dev": {"matchLabels": {name: "kube-system"}},
                "p.podsettle.dev.opt-in": {
                    "matchLabels": {"podsettle.dev/policy": "p"},
                    "matchExpressions": [
                        {"key": name, "operator": "NotIn", "values": ["kube-system"]}
                    ],
                },
            },
        ),
    ]
    for selector, expected in cases:
        found = exported(policy("p", remedies=FS_GROUP, namespaceSelector=selector))
        bindings = documents(found, "MutatingAdmissionPolicyBinding")
        selectors = {
            each["metadata"]["name"]: each["spec"]["matchResources"]["namespaceSelector"]
            for each in bindings
        }
        assert (selector, selectors) == (selector, expected)


def test_no_two_objects_have_one_name() -> None:
    """A policy may have a name such as opt-in.p. The object applied last would replace another."""
    policies = [
        policy(f"{start}{name}{end}", remedies=FS_GROUP, action=action, namespaceSelector=selector)
        for name, action in (("p", "Mutate"), ("p.a", "Audit"))
        for start in ("", "opt-in.", "guard.")
        for end, selector in (("", None), (".podsettle.dev", {"matchLabels": {"a": "b"}}))
    ]
    found = [*exported(*policies).policies, *exported(*policies, guard=True).policies]
    names = [(each["kind"], each["metadata"]["name"]) for made in found for each in made.documents]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("name", NATIVE)
def test_patch_has_no_list_of_object_values(name: str) -> None:
    """Kubernetes 1.36.2 panics for such a value, and the client gets no answer."""
    chosen: Json = {
        "runtimeClass": {"name": "fast"},
        "skipSELinuxRelabel": {"runtimeClassName": "fast"},
        "seLinuxChangePolicy": "Recursive",
        **FS_GROUP,
    }
    found = exported(policy("p", remedies={name: chosen[name]}))
    (written,) = documents(found, "MutatingAdmissionPolicy")
    (mutation,) = written["spec"]["mutations"]
    assert "Object" not in mutation["jsonPatch"]["expression"]


def test_policies_name_their_source_and_the_version() -> None:
    found = exported(policy(remedies=FS_GROUP), policy("first", priority=1, remedies=FS_GROUP))
    annotations = {
        each.source.metadata.name: each.documents[0]["metadata"]["annotations"]
        for each in found.policies
    }
    assert annotations == {
        name: {"podsettle.dev/exported-from": name, "podsettle.dev/exported-by": __version__}
        for name in ("p", "first")
    }


def test_policies_are_told_apart_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """To compare hundreds of policies with one another field by field took half a minute."""
    compared: list[object] = []
    monkeypatch.setattr(SettlePolicy, "__eq__", lambda _self, other: compared.append(other))
    found = exported(*(policy(f"p{i}", priority=i, remedies=FS_GROUP) for i in range(3)))
    assert len(found.policies) == 3
    assert compared == []
