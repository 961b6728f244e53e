"""Doctor's checks on answers of an API server. tests/e2e/inspect runs them on a cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from tests.support.factories import policy_document
from tests.support.markdown import Page
from tests.support.paths import DOCS
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError
from webhook.cluster.raw_responses import RawAnswer
from webhook.core.cluster.nodes import Node
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.policy.selectors import LabelSelector
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.doctor import run
from webhook.inspect.doctor.checks.api_server import matching_labels
from webhook.inspect.doctor.checks.policies import judge_handler, why_waiting
from webhook.inspect.doctor.model import Finding, State
from webhook.inspect.doctor.run import CHECKS, diagnose
from webhook.inspect.installation import selector_matches

Json: TypeAlias = dict[str, Any]

OWN = "/api/v1/namespaces/system"
PODS = f"{OWN}/pods?labelSelector=a%3Db"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/settle"
POLICIES = "/apis/podsettle.dev/v1alpha1/settlepolicies"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/system/horizontalpodautoscalers"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
NOW = datetime(2026, 11, 28, tzinfo=UTC)
CHECK_NAMES = [check.name for check in CHECKS]
SERVICE = {"namespace": "system", "name": "settle", "path": "/mutate", "port": 443}
NAME = "kubernetes.io/metadata.name"
METRICS = """\
# HELP apiserver_admission_webhook_fail_open_count [ALPHA] x
apiserver_admission_webhook_fail_open_count{name="opt-in.podsettle.dev",type="admit"} 3
apiserver_admission_webhook_fail_open_count{name="x.cluster.podsettle.dev",type="admit"} 1e+01
apiserver_admission_webhook_fail_open_count{name="other.example.com",type="admit"} 7
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="opt-in.podsettle.dev",operation="CREATE",rejection_code="0",type="admit"} 2
apiserver_admission_webhook_request_total{name="opt-in.podsettle.dev"} 100
"""  # noqa: E501


def webhook(**fields: Any) -> Json:
    excluded = {"key": NAME, "operator": "NotIn", "values": ["system", "kube-system"]}
    return {
        "name": "opt-in.podsettle.dev",
        "clientConfig": {"service": SERVICE},
        "failurePolicy": "Ignore",
        "namespaceSelector": {"matchExpressions": [excluded]},
        **fields,
    }


def configuration(*webhooks: Json) -> Json:
    kind = "MutatingWebhookConfiguration"
    return {"kind": kind, "metadata": {"name": "settle"}, "webhooks": list(webhooks)}


def pod(name: str, *, ready: bool = True, port: str = "web") -> Json:
    ports = [{"name": "https", "containerPort": 8443}, {"name": port, "containerPort": 9444}]
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "podsettle", "ports": ports}]},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def readyz(*checks: Json, days: float = 30) -> bytes:
    """An answer to /readyz?verbose, with a certificate that expires after these days."""
    expires = (NOW + timedelta(days=days)).isoformat()
    ready = all(check["ready"] for check in checks)
    return json.dumps(
        {"ready": ready, "certificateExpires": expires, "checks": checks, "later": 1}
    ).encode()


def check(name: str, note: str = "", *, ready: bool = True) -> Json:
    return {"name": name, "ready": ready, "note": note}


def items(kind: str, *objects: Json) -> Json:
    return {"kind": f"{kind}List", "metadata": {}, "items": list(objects)}


def namespace(name: str, **labels: str) -> Json:
    labels = {NAME: name, **labels}
    return {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}


DEPLOYMENT: Json = {
    "metadata": {"namespace": "system", "name": "settle"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"app.kubernetes.io/component": "webhook"}},
            "spec": {
                "serviceAccountName": "settle",
                "containers": [{"name": "podsettle", "args": ["--service=settle"]}],
            },
        },
    },
}


class Server:
    """An API server with a healthy installation, except for the answers that a test gives.

    An answer is an object, bytes, or the status of an error.
    """

    title = url = "https://api.example"

    def __init__(self, answers: Mapping[str, object]) -> None:
        deployments = "/apis/apps/v1/namespaces/system/deployments"
        self._answers: dict[str, object] = {
            deployments: items("Deployment", DEPLOYMENT),
            AUTOSCALERS: items("HorizontalPodAutoscaler"),
            PODS: items("Pod", pod("a"), pod("b")),
            ACCESS: {"status": {"allowed": True}},
            CONFIGURATION: (configuration(webhook())),
            OWN: namespace("system"),
            "/api/v1/namespaces/kube-system": namespace("kube-system"),
            "/version": {"gitVersion": "v1.37.0"},
            POLICIES: items("SettlePolicy"),
            "/api/v1/namespaces": items("Namespace", namespace("ci")),
            "/apis/node.k8s.io/v1/runtimeclasses": items("RuntimeClass"),
            "/api/v1/nodes": items("Node"),
            f"{OWN}/pods/https:a:9444/proxy/readyz?verbose": readyz(check("nodes")),
            f"{OWN}/pods/https:b:9444/proxy/readyz?verbose": readyz(check("nodes")),
            "/metrics": b"",
            **answers,
        }

    async def request(self, _method: str, path: str, *_: Any, **_options: Any) -> object:
        answer = self._answers.get(path, 404)
        if isinstance(answer, int):
            raise ApiError(answer, "refused")
        return answer

    async def fetch(self, _method: str, path: str, *_: Any, **_options: Any) -> RawAnswer:
        answer = self._answers.get(path, 404)
        headers = CIMultiDictProxy(CIMultiDict({"Date": format_datetime(NOW, usegmt=True)}))
        status = answer if isinstance(answer, int) else 200
        content = answer if isinstance(answer, bytes) else b"{}"
        return RawAnswer(status, headers, content)

    async def pages(self, path: str, *_: Any, **_options: Any) -> Any:
        found = cast(Json, await self.request("GET", path))
        yield type("Page", (), {"items": found["items"]})


async def report(answers: Mapping[str, object], **options: Any) -> list[Finding]:
    """The findings of all checks of an installation."""
    server = options.pop("server", None) or Server(answers)
    found = await diagnose(
        cast(ApiServer, server),
        namespace="system",
        chosen_namespace=None,
        flags=ClusterFlags(context="c"),
        **{"new_image_lookup": lambda _: pytest.fail("no image is named"), **options},
    )
    return [*found.checks]


async def findings(answers: Mapping[str, object] = {}) -> list[Finding]:
    """The findings of all checks that are not ok."""
    return [each for each in await report(answers) if each.state is not State.OK]


async def test_healthy_installation_has_only_findings_that_are_ok() -> None:
    (found,) = await findings()
    # Without a policy, no pod is created as a dry run.
    assert (found.check, found.state) == ("reachability", State.UNKNOWN)


def replica(name: str, *answers: Any) -> dict[str, object]:
    """Return the answer of a replica: its checks, or anything else."""
    path = f"{OWN}/pods/https:{name}:9444/proxy/readyz?verbose"
    is_checks = all(isinstance(each, dict) for each in answers)
    return {path: readyz(*answers) if is_checks else answers[0]}


UNREADY = items("Pod", pod("a", ready=False), pod("b"))
NONE_READY = items("Pod", pod("a", ready=False), pod("b", ready=False))
AUTOSCALER = {
    "metadata": {"name": "settle"},
    "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "settle"}},
}
MISSED: dict[str, object] = {"/metrics": METRICS.encode()}
OPT_IN = {"matchExpressions": [{"key": "podsettle.dev/policy", "operator": "Exists"}]}
BAD_POLICY = policy_document("bad", remedies={"postInitSleep": {"minLifetime": "soon"}})
BAD_POLICY["metadata"]["creationTimestamp"] = NOW.isoformat()


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        # What a replica says is shown: a failure is a fault, a note is a warning or a fault.
        (replica("a", check("nodes", "gone", ready=False)), "nodes: fault: a: gone"),
        (replica("a", check("nodes", ready=False)), "nodes: fault: a: it fails"),
        (replica("b", check("nodes", "lost")), "nodes: warning: b: lost"),
        (replica("b", check("certificate", "x")), "certificate: warning: b: x"),
        (replica("b", check("lease", "kept")), "lease: fault: b: kept"),
        (replica("b", check("crd", "old")), "crd: fault: b: old"),
        (replica("b", check("registration", "x")), "registration: fault: b: x"),
        (
            replica("a", check("nodes", "lost")) | replica("b", check("nodes", "lost")),
            "nodes: warning: a, b: lost",
        ),
        # One cause gives one fault.
        (
            replica(
                "a",
                check("certificate", "expired", ready=False),
                check("registration", "expired", ready=False),
            ),
            "certificate: fault: a: expired",
        ),
        (
            {CONFIGURATION: 404, **replica("a", check("registration", "it does not exist"))},
            "webhook configuration: fault: MutatingWebhookConfiguration settle does not exist, "
            "so the API server does not call podsettle",
        ),
        (
            {ACCESS: {"status": {}}, **replica("a", check("nodes", "403: forbidden"))},
            "permissions: fault: the account system:serviceaccount:system:settle lacks: get "
            "namespaces",
        ),
        (
            {POLICIES: 404, **replica("a", check("settlepolicies", "404"))},
            "crd: fault: CustomResourceDefinition settlepolicies.podsettle.dev does not exist",
        ),
        (
            {
                POLICIES: items("SettlePolicy", BAD_POLICY),
                **replica("a", check("policies in force", "SettlePolicy/bad: soon")),
            },
            "policies: fault: SettlePolicy bad is not accepted: "
            "spec.remedies.postInitSleep.minLifetime",
        ),
        # A replica that gives no answer of today.
        (
            {PODS: items("Pod", pod("a", port="metrics"), pod("b"))},
            "readiness: unknown: a: it is older than this command, and its checks are not read",
        ),
        (
            replica("a", b'{"kind":"Status","message":"no route"}'),
            "readiness: unknown: a: it is ready, but could not be asked: no route",
        ),
        (
            {PODS: UNREADY, **replica("a", b"<html>")},
            "readiness: fault: a: it is not ready and does not answer: <html>",
        ),
        ({PODS: UNREADY}, "readiness: warning: 1 of 2 replicas are ready; not ready: a"),
        (
            {PODS: UNREADY, **replica("a", 403)},
            "readiness: not_looked_at: needs the right to get pods/a/proxy in namespace system",
        ),
        (
            {PODS: UNREADY, **replica("a", 403)},
            "readiness: warning: 1 of 2 replicas are ready; not ready: a",
        ),
        (
            {PODS: NONE_READY, **replica("a", 403), **replica("b", 403)},
            "readiness: fault: 0 of 2 replicas are ready",
        ),
        ({POLICIES: 403}, "policies: not_looked_at: needs the right to list settlepolicies"),
        # The clock of the API server decides.
        (replica("b", readyz(days=3)), "certificate: warning: it is valid until 2026-12-01 00"),
        (replica("b", readyz(days=-1)), "certificate: fault: it is valid until 2026-11-27 00"),
        # The number of replicas.
        ({PODS: items("Pod", pod("a"))}, "replicas: fault: 1 of 2 replicas exist"),
        ({PODS: items("Pod")}, "replicas: fault: 0 of 2 replicas exist"),
        (
            {AUTOSCALERS: items("HorizontalPodAutoscaler", AUTOSCALER)},
            "replicas: fault: one replica only",
        ),
        (
            {AUTOSCALERS: 403},
            "replicas: unknown: an autoscaler could remove replicas, and it needs the right to "
            "list",
        ),
        # Exclusions, also of namespaces that would be labelled to opt in.
        (
            {CONFIGURATION: configuration(webhook(namespaceSelector={}, failurePolicy="Fail"))},
            "exclusions: fault: opt-in.podsettle.dev includes kube-system, with failurePolicy Fail",
        ),
        (
            {CONFIGURATION: configuration(webhook(namespaceSelector=OPT_IN))},
            "exclusions: fault: opt-in.podsettle.dev includes podsettle's own namespace system",
        ),
        (
            {CONFIGURATION: configuration({**webhook(), "name": "x.cluster.podsettle.dev"})},
            "webhook configuration: fault: MutatingWebhookConfiguration settle has no webhook "
            "opt-in.podsettle.dev",
        ),
        # Counters of the API server.
        (MISSED, "failed calls: warning: 13 pods were created without"),
        (
            MISSED | {CONFIGURATION: configuration(webhook(failurePolicy="Fail"))},
            "failed calls: warning: 13 pods were created without podsettle and 2 were refused",
        ),
        ({"/metrics": 403}, "failed calls: not_looked_at: needs the right to get /metrics"),
        (
            MISSED
            | {PODS: NONE_READY, CONFIGURATION: configuration(webhook(failurePolicy="Fail"))},
            "failed calls: fault: failurePolicy is Fail, and no replica is ready: 13 pods",
        ),
    ],
)
async def test_fault_is_found_alone(answers: Mapping[str, object], line: str) -> None:
    """A line has the check, the state and the beginning of the result."""
    found = await findings(answers)
    said = [f"{each.check}: {each.state}: {each.result}" for each in found]
    assert any(each.startswith(line) for each in said), said
    name = line.partition(":")[0]
    bad = {each.check for each in found if each.state in (State.FAULT, State.WARNING)}
    # Replicas that are not ready are another fault than the pods that are refused meanwhile.
    assert bad <= {name, "readiness"} if name == "failed calls" else bad <= {name}


IMAGE = "registry.example/linger"
NEWER = "and podsettle skips what needs a newer one: openFiles of limits"


class NoLookup:
    """A look-up of images that gets no answer."""

    async def find(self, *_: object) -> dict[Any, Any]:
        return {}

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize(
    ("arguments", "state", "result"),
    [
        ([], "fault", "none is named, and these need it: openFiles of limits"),
        (["image={}:0.1.0"], "fault", f"{{}}:0.1.0 has version 0.1.0, {NEWER}"),
        (["image={}:stable"], "fault", f"{{}}:stable does not say its version, {NEWER}"),
        (
            ["image={}:0.1.0", "version=0.2.0"],
            "warning",
            "its stated version is 0.2.0, but the tag of {}:0.1.0 says 0.1.0",
        ),
        (
            ["image={}:stable", "version=0.2.0"],
            "ok",
            "it is {}:stable. Its version 0.2.0 is only stated: the tag does not show it",
        ),
        (["image={}:0.2.0"], "ok", "it is {}:0.2.0"),
    ],
)
async def test_helper_is_new_enough_for_the_policies_that_use_it(
    arguments: list[str], state: str, result: str
) -> None:
    """Of three policies with openFiles, two do not use the helper."""
    deployment = deepcopy(DEPLOYMENT)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["args"] += [f"--linger-{each.format(IMAGE)}" for each in arguments]
    policies = [
        policy_document(name, remedies={"openFiles": {"soft": 65536, **delivery}}, **spec)
        for name, spec, delivery in (
            ("audits", {"action": "Audit"}, {}),
            ("by-shell", {}, {"delivery": "Shell"}),
            ("limits", {}, {}),
        )
    ]
    for each in policies:
        each["metadata"]["creationTimestamp"] = NOW.isoformat()
    answers = {
        "/apis/apps/v1/namespaces/system/deployments": items("Deployment", deployment),
        POLICIES: items("SettlePolicy", *policies),
    }
    checks = await report(answers, new_image_lookup=lambda _: NoLookup())
    found = [(each.state, each.result) for each in checks if each.check == "helper image"]
    assert found == [(state, result.format(IMAGE))]


async def test_policies_that_the_api_server_does_not_have_are_not_ok() -> None:
    said = {each.check: (each.state, each.result) for each in await findings({POLICIES: 404})}
    assert said["policies"] == (State.UNKNOWN, "the API server has no settlepolicies")


async def test_finding_names_a_section_that_exists_and_a_command_for_the_chosen_cluster() -> None:
    anchors = Page(DOCS / "operations.md").anchors
    sections = {name.replace(" ", "-") for name in CHECK_NAMES}
    sections |= {"installation", "certificate", "registration", "lease", "crd"}
    assert sections <= anchors
    of_replicas = replica("a", check("crd", "old")) | replica("b", check("nodes", "lost"))
    found = await findings({"/metrics": 403, **of_replicas})
    repairs = {each.check: each.repair for each in found}
    assert repairs == {
        "crd": "docs/operations.md#crd",
        "nodes": "docs/operations.md#readiness",
        "reachability": "",
        "failed calls": "",
    }
    (denied,) = (each for each in found if each.state is State.NOT_LOOKED_AT)
    assert denied.right == "get /metrics"
    assert denied.command == "kubectl --context=c auth can-i get /metrics"
    missed = {each.check: each.command for each in await findings(MISSED)}
    assert missed["failed calls"] == "podsettle scan --context=c"


async def test_progress_names_the_check_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowServer(Server):
        async def fetch(self, _method: str, path: str, *_: Any, **_options: Any) -> RawAnswer:
            await asyncio.sleep(0.05 if path == "/metrics" else 0)
            return await super().fetch(_method, path)

    monkeypatch.setattr(run, "_PROGRESS_SECONDS", 0.01)
    shown: list[tuple[str, int, int | None]] = []
    await report({}, server=SlowServer({}), on_progress=lambda *work: shown.append(work))
    assert ("failed calls", len(CHECKS) - 1, len(CHECKS)) in shown


@pytest.mark.parametrize(
    ("client", "address"),
    [
        ({"url": "https://198.51.100.1/mutate"}, "the URL https://198.51.100.1/mutate"),
        ({"service": SERVICE | {"path": "/"}}, "Service system/settle:443/"),
        ({"service": SERVICE | {"port": 8443}}, "Service system/settle:8443/mutate"),
        ({"service": SERVICE | {"namespace": "old"}}, "Service old/settle:443/mutate"),
        ({"service": SERVICE}, ""),
        ({"service": {key: value for key, value in SERVICE.items() if key != "port"}}, ""),
    ],
)
async def test_call_of_another_address_is_named(client: Json, address: str) -> None:
    document = configuration({"name": "other.example.com"}, webhook(clientConfig=client))
    wanted = "Service system/settle:443/mutate"
    expected = f"opt-in.podsettle.dev calls {address} instead of {wanted}" if address else ""
    # The certificate is not for another address.
    distrusted = replica("a", check("registration", "x", ready=False))
    found = {each.check: each for each in await findings({CONFIGURATION: document, **distrusted})}
    named = found.get("webhook configuration")
    assert (named.result if named else "") == expected
    assert ("registration" in found) == (not address)


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["1", "2", "3"])


@given(
    labels=st.dictionaries(KEYS, VALUES),
    keys=st.lists(st.tuples(KEYS, st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]))),
)
def test_labels_are_found_for_a_selector_that_an_object_matches(
    labels: dict[str, str], keys: list[tuple[str, str]]
) -> None:
    """At most one requirement for each key, as the values of In are alternatives."""
    expressions = []
    for key, operator in dict(keys).items():
        value = labels.get(key, "1")
        values = {"In": [value, "3"], "NotIn": ["0"]}.get(operator)
        if operator == "DoesNotExist":
            labels.pop(key, None)
        expressions.append(
            {"key": key, "operator": operator, **({"values": values} if values else {})}
        )
    selector = {"matchExpressions": expressions}
    assert selector_matches(selector, matching_labels(LabelSelector.model_validate(selector)))
    exact = {**selector, "matchLabels": labels}
    if selector_matches(exact, labels):
        assert selector_matches(exact, matching_labels(LabelSelector.model_validate(exact)))


def node(name: str, handlers: list[str] | None, **labels: str) -> Node:
    return Node.read(
        name, labels, "cri-o://1.33.5", "v1.33.5", frozenset(handlers) if handlers else None
    )


def windows_node(handlers: list[str] | None) -> Node:
    return node("w", handlers, pool="x", **{"kubernetes.io/os": "windows"})


def test_handler_is_missing_only_if_every_node_of_the_class_lists_others() -> None:
    cases: list[tuple[list[Node], State | None]] = [
        ([], State.UNKNOWN),
        ([node("a", ["runc"], pool="other")], State.UNKNOWN),
        ([node("a", None, pool="x")], State.UNKNOWN),
        ([node("a", ["runc"], pool="x"), node("b", None, pool="x")], State.UNKNOWN),
        ([node("a", ["runc"], pool="x"), node("b", ["kata"], pool="other")], State.FAULT),
        ([node("a", ["runc"], pool="x"), node("b", ["kata"], pool="x")], None),
        ([node("a", ["kata"], pool="x"), node("b", None, pool="x")], None),
        ([node("a", ["runc"], pool="x"), windows_node(None)], State.FAULT),
        ([node("a", ["runc"], pool="x"), windows_node(["kata"])], State.FAULT),
        ([node("a", None, pool="x"), windows_node(["kata"])], State.UNKNOWN),
        ([windows_node(["kata"])], State.UNKNOWN),
    ]
    for nodes, state in cases:
        runtime_class = RuntimeClassInfo("kata-class", "kata", node_selector={"pool": "x"})
        found = judge_handler("sandboxed", runtime_class, nodes)
        assert (nodes, found and found.state) == (nodes, state)


@pytest.mark.parametrize(
    ("name", "image", "waits"),
    [
        ("podsettle-linger", "registry.example/linger:1", True),
        ("podsettle-linger", "registry.example/linger:0", False),
        ("other", "registry.example/linger:1", False),
    ],
)
def test_pod_waits_for_the_helper_only_if_it_has_the_image_of_today(
    name: str, image: str, waits: bool
) -> None:
    state = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    waiting = {
        "spec": {"initContainers": [{"name": name, "image": image}]},
        "status": {"initContainerStatuses": [{"name": name, "state": {"waiting": state}}]},
    }
    expected = "Back-off pulling image" if waits else ""
    assert why_waiting(waiting, "registry.example/linger:1") == expected


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        (AUTOSCALERS, items("HorizontalPodAutoscaler", {"metadata": {"name": "a"}})),
        (PODS, items("Pod", {"metadata": {"name": "a"}})),
        (CONFIGURATION, configuration({"name": "opt-in.podsettle.dev"})),
    ],
)
async def test_malformed_object_is_no_internal_error(path: str, answer: Json) -> None:
    found = [each for each in await findings({path: answer}) if "is malformed" in each.result]
    assert found
    assert all(each.state is State.UNKNOWN for each in found)
