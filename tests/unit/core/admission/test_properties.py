"""Property tests over generated pods, policies and views of the cluster."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import jsonpatch
from hypothesis import assume, event, example, given
from hypothesis import strategies as st

from tests.support.both_ways import admit_both_ways
from tests.support.examples import examples
from tests.support.factories import (
    Json,
    node,
    policy,
    qos,
    review,
    view,
)
from tests.support.forbidden_changes import forbidden
from tests.support.patches import NOTES
from tests.support.strategies import (
    GATE,
    HELPER,
    HELPER_PATH,
    INJECTED,
    JUNK,
    PODS,
    SETTINGS,
    START_GATE,
    TEXTS,
    VIEWS,
)
from webhook.core.admission.decider import OperatorSettings
from webhook.core.admission.handler import UnreadableReviewError
from webhook.core.policy.snapshot import Snapshot


class Answered(NamedTuple):
    operations: list[Json]
    after: Any


def ask(document: Any, seen: Snapshot, options: OperatorSettings) -> Answered:
    """Return the operations in the answer, and the pod after the patch."""
    body = review(document, uid="u")
    answer = admit_both_ways(json.dumps(body).encode(), seen, options)
    assert answer.error is None, answer.error
    found = json.loads(answer.body)
    response = found["response"]
    assert (found["kind"], response["uid"], response["allowed"]) == ("AdmissionReview", "u", True)
    assert all(len(warning) <= 256 for warning in response.get("warnings", []))
    operations = json.loads(base64.b64decode(response.get("patch", "W10=")))
    assert ("patchType" in response) is bool(operations)
    assert all(operation["op"] in ("add", "replace", "move") for operation in operations)
    return Answered(operations, jsonpatch.apply_patch(document, operations))


def unserved(before: Any, after: Any) -> list[str]:
    """Return the wrapped init containers that start before the helper is delivered."""
    if any(
        v["name"] == HELPER and v.get("image") is not None
        for v in after["spec"].get("volumes") or ()
    ):
        return []
    old = {c["name"]: c.get("command") for c in before["spec"].get("initContainers") or ()}
    found = []
    there = False
    for each in after["spec"].get("initContainers") or ():
        command = each.get("command")
        there = there or each["name"] == HELPER
        wrapped = (command or [""])[0] == HELPER_PATH and command != old.get(each["name"])
        if wrapped and not there:
            found.append(each["name"])
    return found


PLUGIN_ANNOTATION = "consul.hashicorp.com/redirect-traffic-config"


def behind_plugin(document: Any) -> bool:
    """Return whether a CNI plugin redirects the connections of all containers of a pod."""
    spec = document["spec"]
    names = {c["name"] for key in ("initContainers", "containers") for c in spec.get(key) or ()}
    return (
        PLUGIN_ANNOTATION in (document["metadata"].get("annotations") or {})
        or ("istio-validation" in names and "istio-init" not in names)
        or ("linkerd-proxy" in names and "linkerd-init" not in names)
    )


def may_redirect(container: Any) -> bool:
    """Return whether connections may go to a proxy after an init container has run."""
    security = container.get("securityContext") or {}
    added = (security.get("capabilities") or {}).get("add") or ()
    name = container["name"]
    sidecar = container.get("restartPolicy") == "Always" or name.startswith("sidecar-")
    return name not in {HELPER, GATE, START_GATE} and (
        name in {"istio-init", "linkerd-init", "proxyinit"}
        or (bool(security.get("privileged")) and not sidecar)
        or not {"NET_ADMIN", "cap_net_raw", "ALL"}.isdisjoint(added)
    )


def misplaced(before: Any, after: Any) -> bool:
    """Return whether a gate was inserted where a mesh redirects its connections.

    Otherwise the start gate has to be first, except for the helper and the other gate. So has a
    kubelet gate that is the start gate too. Any other kubelet gate has to be last.
    """
    old, new = (each["spec"].get("initContainers") or [] for each in (before, after))
    names = [c["name"] for c in new]
    inserted = {c["name"]: c for c in new if c["name"] not in [c["name"] for c in old]}
    for gate in {GATE, START_GATE} & inserted.keys():
        if inserted[gate]["command"][-1] == "wait":
            in_front = names[: names.index(gate)]
            return behind_plugin(before) or not {*in_front} <= {HELPER, GATE, START_GATE}
    if GATE not in inserted:
        return False
    place = names.index(GATE)
    if behind_plugin(before):
        proxies = {"istio-proxy", "linkerd-proxy", "consul-dataplane"}
        return place != len(names) - 1 or proxies.isdisjoint(names)
    if any(map(may_redirect, new)):
        return next(map(may_redirect, new[place + 1 :]), False) is False or any(
            map(may_redirect, new[:place])
        )
    return place != len(names) - 1


@examples(300)
@given(document=PODS, seen=VIEWS, options=SETTINGS)
def test_any_pod_gets_only_allowed_changes_and_a_second_call_adds_none(
    document: Json, seen: Snapshot, options: OperatorSettings
) -> None:
    received = copy.deepcopy(document)
    first = ask(document, seen, options)
    event("patched" if first.operations else "unpatched")
    assert document == received
    assert list(forbidden(document, first.after)) == []
    assert unserved(document, first.after) == []
    assert not misplaced(document, first.after)
    assert qos(first.after) == qos(document)
    assert ask(first.after, seen, options).operations == []


@examples(300)
@given(document=PODS, injected=INJECTED, where=st.integers(0, 6), seen=VIEWS, options=SETTINGS)
def test_a_container_added_between_two_calls_keeps_the_changes_allowed(
    document: Json, injected: Json, where: int, seen: Snapshot, options: OperatorSettings
) -> None:
    between = ask(document, seen, options).after
    inits = between["spec"].get("initContainers") or []
    # The API server refuses two containers of one name.
    assume(injected["name"] not in [c["name"] for c in inits])
    between["spec"]["initContainers"] = [*inits[:where], injected, *inits[where:]]
    second = ask(between, seen, options)
    event("patched again" if second.operations else "nothing to do")
    assert list(forbidden(between, second.after)) == []
    assert unserved(between, second.after) == []
    assert ask(second.after, seen, options).operations == []


@examples(300)
@given(
    document=PODS,
    lost=st.sets(st.sampled_from(["volumes", "initContainers", 0, 1, 2])),
    seen=VIEWS,
    options=SETTINGS,
)
def test_a_copy_that_lacks_parts_of_the_helper_is_changed_once(
    document: Json, lost: set[Any], seen: Snapshot, options: OperatorSettings
) -> None:
    spec = ask(document, seen, options).after["spec"]
    for key in lost & {"volumes", "initContainers"}:
        spec[key] = [each for each in spec.get(key) or [] if each["name"] != HELPER]
    for position in lost - {"volumes", "initContainers"}:
        for each in (spec["containers"] + (spec.get("initContainers") or []))[position::3]:
            mounts = each.get("volumeMounts") or []
            each["volumeMounts"] = [mount for mount in mounts if mount["name"] != HELPER]
    between = {"metadata": document["metadata"], "spec": spec}
    second = ask(between, seen, options)
    event("patched again" if second.operations else "nothing to do")
    assert list(forbidden(between, second.after)) == []
    assert ask(second.after, seen, options).operations == []


@examples(300)
@given(document=PODS, seen=VIEWS, options=SETTINGS)
def test_notes_are_written_for_policies_that_mutate_and_stay_within_their_bounds(
    document: Json, seen: Snapshot, options: OperatorSettings
) -> None:
    before = (document.get("metadata") or {}).get("annotations") or {}
    answer = admit_both_ways(json.dumps(review(document, uid="u")).encode(), seen, options)
    after = ask(document, seen, options).after
    annotations = (after.get("metadata") or {}).get("annotations") or {}
    written = {key: annotations[key] for key in NOTES if annotations.get(key) != before.get(key)}
    event("notes" if written else "no notes")
    assert sum(len(f"{key}{text}".encode()) for key, text in written.items()) <= 2_048
    mutating = {
        each.metadata.name for each in seen.policies.documents if each.spec.action == "Mutate"
    }
    if written:
        assert any(
            each.policy in mutating and (each.changed or each.reason.warns or each.effect)
            for each in answer.decision.outcomes
        )
    listed = annotations.get("podsettle.dev/skipped", "").split(",")
    for each in answer.decision.outcomes:
        if each.changed or not each.reason.warns or each.policy not in mutating:
            continue
        subject = f"{each.container}/{each.remedy}" if each.container else each.remedy
        is_listed = f"{subject}={each.reason}" in listed
        assert is_listed or not NAME.fullmatch(each.container or "a")


NAME = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    steps = list(value.items()) if isinstance(value, dict) else []
    if isinstance(value, list):
        steps = list(enumerate(value))
    for step, inner in steps:
        yield from places(inner, (*path, step))


@given(document=PODS, junk=JUNK, data=st.data(), seen=VIEWS, options=SETTINGS)
def test_a_pod_with_junk_in_any_field_is_allowed(
    document: Json, junk: Any, data: st.DataObject, seen: Snapshot, options: OperatorSettings
) -> None:
    *path, last = data.draw(st.sampled_from([p for p in places(document) if p]))
    found: Any = document
    for step in path:
        found = found[step]
    found[last] = junk
    first = ask(document, seen, options)
    assert ask(first.after, seen, options).operations == []


@given(document=JUNK, seen=VIEWS, options=SETTINGS)
def test_any_json_as_the_pod_is_answered(
    document: Any, seen: Snapshot, options: OperatorSettings
) -> None:
    first = ask(document, seen, options)
    assert ask(first.after, seen, options).operations == []


REVIEWISH = st.fixed_dictionaries(
    {},
    optional={
        "apiVersion": st.sampled_from(["admission.k8s.io/v1", "admission.k8s.io/v1beta1"]) | JUNK,
        "kind": st.just("AdmissionReview") | JUNK,
        "request": JUNK
        | st.fixed_dictionaries(
            {"uid": TEXTS | JUNK},
            optional={
                "operation": st.just("CREATE") | JUNK,
                "resource": st.just({"resource": "pods"}) | JUNK,
                "namespace": TEXTS | JUNK,
                "object": JUNK,
            },
        ),
    },
).map(lambda body: json.dumps(body).encode())


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    body = draw(REVIEWISH)
    at = draw(st.integers(0, len(body)))
    return body[:at] + draw(st.binary(max_size=2)) + body[at + draw(st.integers(0, 2)) :]


SEEN = view(policy(), nodes=[node()])


@example(body=b'{"request":{"uid":"0"')
@given(body=st.binary(max_size=30) | REVIEWISH | damaged())
def test_any_body_is_answered_or_refused_as_no_review(body: bytes) -> None:
    try:
        answer = admit_both_ways(body, SEEN, OperatorSettings())
    except UnreadableReviewError:
        return
    found = json.loads(answer.body)
    uid = found["response"]["uid"]
    try:
        # Keys that podsettle does not read may hold bytes that are not UTF-8.
        review = json.loads(body.decode(errors="replace"))
    except ValueError:
        assert re.search(rb'"request"\s*:\s*{\s*"uid"\s*:\s*"%s"' % uid.encode(), body)
    else:
        assert uid == review["request"]["uid"]
    assert found["response"]["allowed"] is True
    assert found["apiVersion"].startswith("admission.k8s.io/")
