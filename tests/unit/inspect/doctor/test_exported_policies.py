"""Tests of what doctor says about native policies. The API server's part is in tests/e2e."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.exported_policies import as_read, written
from tests.support.factories import Json, node, policy, runtime_class, view
from webhook import __version__
from webhook.cluster.rights import Right
from webhook.cluster.unread import Unread
from webhook.cluster.view_reader import NOT_INSTALLED, ReadView
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.inspect.cluster_flags import NO_FLAGS
from webhook.inspect.doctor.checks.exported_policies import Compared, judge_exported
from webhook.inspect.doctor.model import Result, State
from webhook.inspect.exported_policies import MUTATING, VALIDATING

FS_GROUP = {"fsGroupChangePolicy": "OnRootMismatch"}
SELINUX = {"seLinuxChangePolicy": "Recursive"}
SHELL = {"postInitSleep": {"delivery": "Shell"}}
OWN = policy(remedies=FS_GROUP)
POLICIES_RIGHT = Right("list", "podsettle.dev", "settlepolicies")
DELETE = (
    "kubectl delete mutatingadmissionpolicy/p.podsettle.dev "
    "mutatingadmissionpolicybinding/p.podsettle.dev"
)


def judged(
    documents: Iterable[Json], seen: Snapshot, *, webhook: bool | None = False, **read: Any
) -> list[Result]:
    documents = list(documents)
    found = [as_read(documents, api) for api in (MUTATING, VALIDATING)]
    unread, problems = read.get("unread", ()), read.get("problems", ())
    compared = Compared(ReadView(seen, "c", unread, problems, {}), webhook)
    return list(judge_exported(found, compared))


def one(documents: Iterable[Json], seen: Snapshot, **read: Any) -> Result:
    (result,) = judged(documents, seen, **read)
    return result


def commands(result: Result) -> tuple[str, ...]:
    assert result.advice is not None
    return result.advice.printed(NO_FLAGS).commands


def test_current_policy_is_in_force_with_its_origin_and_the_command_that_removes_it() -> None:
    found = one(written(view(OWN)), view(OWN))
    assert found.state is State.OK
    assert found.result == (
        f"MutatingAdmissionPolicy p.podsettle.dev, exported by podsettle {__version__} from "
        "SettlePolicy p: it is in force"
    )
    assert commands(found) == (DELETE,)


@pytest.mark.parametrize(
    ("webhook", "action", "acts"),
    [(True, "Mutate", True), (True, "Audit", False), (False, "Mutate", False)],
)
def test_webhook_that_acts_too_is_named(webhook: bool, action: str, acts: bool) -> None:
    seen = view(policy(remedies=FS_GROUP, action=action))
    found = one(written(seen), seen, webhook=webhook)
    assert found.state is State.OK
    assert ("the webhook acts on the same pods" in found.result) == acts


def test_policy_without_a_binding_is_not_in_force() -> None:
    found = one(written(view(OWN))[:1], view(OWN))
    assert found.state is State.WARNING
    assert "it is not in force, because it has no binding" in found.result
    assert commands(found) == (
        "podsettle export p | kubectl apply -f -",
        "kubectl delete mutatingadmissionpolicy/p.podsettle.dev",
    )


def test_binding_of_an_operator_puts_a_policy_in_force_and_is_removed_with_it() -> None:
    exported, binding = written(view(OWN))
    binding["metadata"] = {"name": "by-hand"}
    found = one([exported, binding], view(OWN))
    assert found.state is State.OK
    assert commands(found)[0].endswith(" mutatingadmissionpolicybinding/by-hand")


def test_binding_without_its_policy_is_removed_alone() -> None:
    found = one(written(view(OWN))[1:], view(OWN))
    assert found.state is State.WARNING
    assert "its policy p.podsettle.dev does not exist" in found.result
    assert commands(found) == ("kubectl delete mutatingadmissionpolicybinding/p.podsettle.dev",)


def test_policies_of_others_are_not_judged() -> None:
    documents = written(view(OWN))
    for each in documents:
        del each["metadata"]["labels"]
    assert judged(documents, view(OWN)) == []


def test_changed_settle_policy_is_exported_again_with_the_same_flags() -> None:
    parts = {**FS_GROUP, "kubeletGate": {}}
    before, after = view(OWN), view(policy(remedies=parts))
    found = one(written(before), after)
    assert found.state is State.WARNING
    assert "SettlePolicy p, or one to which it yields, has changed since" in found.result
    assert commands(found) == ("podsettle export p --partial | kubectl apply -f -", DELETE)
    guarded = one(written(before, guard=True), view(policy(remedies=SELINUX)), webhook=True)
    assert commands(guarded)[0] == "podsettle export p --guard | kubectl apply -f -"


def test_beta_policy_is_exported_again_as_a_beta() -> None:
    seen = view(policy(remedies=SELINUX))
    exported = as_read(written(view(OWN)), MUTATING, "v1beta1")
    compared = Compared(ReadView(seen, "c", (), (), {}), is_webhook_registered=False)
    (found,) = judge_exported([exported], compared)
    assert commands(found)[0].startswith("podsettle export p --api-version v1beta1 | ")


def test_policy_to_which_it_yields_counts_as_a_change() -> None:
    first = policy("a", priority=1, remedies=FS_GROUP)
    found = one(written(view(OWN)), view(OWN, first))
    assert "or one to which it yields, has changed since" in found.result


def test_binding_that_a_new_export_would_not_write_is_deleted_too() -> None:
    selected = policy(remedies=FS_GROUP, namespaceSelector={"matchLabels": {"a": "b"}})
    found = one(written(view(selected)), view(policy(remedies=FS_GROUP, namespaceSelector=None)))
    assert "would not write its binding p.podsettle.dev" in found.result
    assert commands(found)[:2] == (
        "podsettle export p | kubectl apply -f -",
        "kubectl delete mutatingadmissionpolicybinding/p.podsettle.dev",
    )


def test_policy_of_another_action_than_today_is_only_removed() -> None:
    found = one(written(view(OWN)), view(policy(remedies=FS_GROUP, action="Audit")))
    assert "has changed since" in found.result
    assert commands(found) == (DELETE,)


def test_nodes_that_no_longer_need_a_remedy_are_a_reason_to_export_again() -> None:
    both = policy(remedies={**SHELL, **FS_GROUP})
    needy, fixed = (
        view(both, nodes=[node(runtime=each)]) for each in ("cri-o://1.33.12", "cri-o://1.36.0")
    )
    assert one(written(needy), needy).state is State.OK
    found = one(written(needy), fixed)
    assert found.state is State.WARNING
    assert "an export of today would leave out postInitSleep" in found.result
    assert commands(found)[0] == "podsettle export p | kubectl apply -f -"
    assert "would add postInitSleep" in one(written(fixed), needy).result


def test_policy_that_no_node_needs_is_only_removed() -> None:
    alone = policy(remedies=SHELL)
    needy, fixed = (
        view(alone, nodes=[node(runtime=each)]) for each in ("cri-o://1.33.12", "cri-o://1.36.0")
    )
    found = one(written(needy), fixed)
    assert "an export of today would leave out postInitSleep" in found.result
    assert commands(found) == (DELETE,)


def test_nodes_that_must_not_be_read_decide_nothing() -> None:
    alone = policy(remedies=SHELL)
    fixed = view(alone, nodes=[node(runtime="cri-o://1.36.0")])
    unread = (Unread("nodes", Right("list", "", "nodes")),)
    assert one(written(view(alone)), fixed, unread=unread).state is State.OK


def test_missing_class_puts_a_policy_out_of_force() -> None:
    fast = policy(remedies={"runtimeClass": {"name": "fast"}})
    with_class = view(fast, classes=[runtime_class("fast")])
    assert one(written(with_class), with_class).state is State.OK
    found = one(written(with_class), view(fast))
    assert found.state is State.WARNING
    assert "not in force, because RuntimeClass fast does not exist" in found.result
    assert commands(found) == (DELETE,)


def test_policy_whose_settle_policy_is_gone_is_removed() -> None:
    found = one(written(view(OWN)), view())
    assert found.state is State.WARNING
    assert "there is no SettlePolicy p" in found.result
    assert commands(found) == (DELETE,)


def test_settle_policy_that_is_not_accepted_is_not_gone() -> None:
    problems = (ManifestProblem("SettlePolicy/p", 0, "broken"),)
    found = one(written(view(OWN)), view(), problems=problems)
    assert "SettlePolicy p is not accepted" in found.result
    assert "there is no" not in found.result


def test_cluster_without_settle_policies_has_nothing_to_compare() -> None:
    unread = (Unread("settlepolicies", POLICIES_RIGHT, NOT_INSTALLED),)
    assert one(written(view(OWN)), view(), unread=unread).state is State.OK


def test_settle_policies_that_must_not_be_read_are_named() -> None:
    unread = (Unread("settlepolicies", POLICIES_RIGHT),)
    own, missing = judged(written(view(OWN)), view(), unread=unread, webhook=True)
    assert own.state is State.OK
    assert (missing.state, missing.right) == (State.NOT_LOOKED_AT, "list settlepolicies")


def test_policy_without_annotations_is_only_removed() -> None:
    documents = written(view(OWN))
    del documents[0]["metadata"]["annotations"]
    found = one(documents, view(OWN))
    assert ", exported by podsettle of an unknown version: it is in force" in found.result
    assert "its annotation podsettle.dev/exported-from is missing" in found.result
    assert commands(found) == (DELETE,)


@pytest.mark.parametrize(
    ("webhook", "is_exported", "is_useful"),
    [(False, False, False), (False, True, True), (True, False, True), (None, False, True)],
)
def test_guard_has_no_effect_if_nothing_settles_the_pods(
    webhook: bool | None, is_exported: bool, is_useful: bool
) -> None:
    seen = view(OWN)
    documents = [*written(seen, guard=True), *(written(seen) if is_exported else ())]
    *_, guard = judged(documents, seen, webhook=webhook)
    assert guard.result.startswith("ValidatingAdmissionPolicy guard.p.podsettle.dev")
    assert (guard.state is State.OK) == is_useful
    assert ("nothing settles the pods that it reports" in guard.result) != is_useful
