"""Tests that every reason of the core is given by a decision."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.both_ways import admit_both_ways
from tests.support.factories import (
    SETTINGS,
    Json,
    container,
    decide_pod,
    namespace,
    node,
    pod,
    policy,
    runtime_class,
    view,
)
from tests.support.reviews import make_request
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.decision import Decision
from webhook.core.cluster.view import Namespace
from webhook.core.defects.versions import Version
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import NOT_EVALUATED, Reason

QUICK = container("prepare", "/entrypoint")
SLEEP = view(policy())


def ask(document: Json, seen: Snapshot = SLEEP, options: OperatorSettings = SETTINGS) -> Decision:
    return decide_pod(document, seen, settings=options).decision


def sleep(document: Json, **settings: Any) -> Decision:
    return ask(document, view(policy(remedies={"postInitSleep": settings})))


def relabel(document: Json) -> Decision:
    return ask(document, view(policy(remedies={"skipSELinuxRelabel": {}})))


def classed(document: Json, *classes: Json) -> Decision:
    return ask(document, view(policy(remedies={"runtimeClass": {"name": "fast"}}), classes=classes))


def labelled(labels: Json) -> Decision:
    return ask(pod(QUICK), view(policy(), namespaces=[namespace("ci", labels)]))


def updated() -> Decision:
    request = replace(make_request(pod(QUICK), "ci"), operation="UPDATE")
    return Decider(SETTINGS).decide(request, SLEEP)


def admitted(pod_: Any = None, kind: str = "AdmissionReview", seen: Snapshot = SLEEP) -> Decision:
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request = {"uid": "u", "operation": "CREATE", "resource": resource, "object": pod_}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": kind, "request": request}
    return admit_both_ways(json.dumps(body).encode(), seen, SETTINGS).decision


def defective() -> Decision:
    @dataclass(frozen=True)
    class Broken(Snapshot):
        def namespace(self, name: str) -> Namespace | None:
            raise ZeroDivisionError(name)

    return admitted(pod(QUICK), seen=Broken())


def retried(document: Json) -> Decision:
    remedies = {"retryInitExit255": {"initContainers": ["prepare"]}}
    return ask(document, view(policy(remedies=remedies), server=Version(1, 36)))


def gated(document: Json) -> Decision:
    return ask(document, view(policy(remedies={"kubeletGate": {}})))


def change_policy(document: Json) -> Decision:
    remedies: Json = {"seLinuxChangePolicy": "Recursive"}
    return ask(document, view(policy(remedies=remedies), server=Version(1, 36)))


CLAIM: Json = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
MOUNT = {"name": "podsettle-linger", "mountPath": "/podsettle"}
SETTLED = container("prepare", "/podsettle/linger", "--", "/entrypoint", volumeMounts=[MOUNT])
AUDIT = view(policy(action="Audit"))
OLD = view(policy(remedies={"postInitSleep": {"delivery": "ImageVolume"}}), server=Version(1, 33))
QUAY = {"lookup": "Registry", "registries": ["quay.io"]}
CASES: dict[Reason, Callable[[], Decision]] = {
    Reason.APPLIED: lambda: ask(pod(QUICK)),
    Reason.WOULD_APPLY: lambda: ask(pod(QUICK), AUDIT),
    Reason.ALREADY_SETTLED: lambda: ask(pod(SETTLED)),
    Reason.NO_POLICY: lambda: ask(pod(QUICK), view()),
    Reason.POLICY_NOT_FOUND: lambda: labelled({"podsettle.dev/policy": "x"}),
    Reason.NAMESPACE_DISABLED: lambda: labelled({"podsettle.dev/enabled": "false"}),
    Reason.NAMESPACE_UNKNOWN: lambda: ask(pod(QUICK), Snapshot(invents_namespaces=False)),
    Reason.PROTECTED_NAMESPACE: lambda: (
        decide_pod(pod(QUICK), SLEEP, namespace="kube-system").decision
    ),
    Reason.NOT_POD_CREATE: updated,
    Reason.POD_OPTED_OUT: lambda: ask(pod(QUICK, annotations={"podsettle.dev/skip": "true"})),
    Reason.MIRROR_POD: lambda: ask(pod(QUICK, annotations={"kubernetes.io/config.mirror": "x"})),
    Reason.WINDOWS_POD: lambda: ask(pod(QUICK, os={"name": "windows"})),
    Reason.POD_TOO_LARGE: lambda: ask(pod(*[QUICK] * 1000)),
    Reason.NO_COMMAND: lambda: ask(pod(container("a"))),
    Reason.IMAGE_CONFIG_UNAVAILABLE: lambda: ask(
        pod(container("a")), view(policy(imageConfig=QUAY))
    ),
    Reason.SHORT_IMAGE_NAME: lambda: ask(
        pod(container("a", image="busybox")), view(policy(imageConfig=QUAY))
    ),
    Reason.NO_SHELL: lambda: sleep(pod(QUICK), delivery="Shell"),
    Reason.INTERACTIVE: lambda: sleep(pod(container("a", "sh", tty=True)), delivery="Shell"),
    Reason.TRAPS_INTERRUPT: lambda: sleep(
        pod(container("a", "sh", "-c", "trap 'exit 0' INT; sleep 9")), delivery="Shell"
    ),
    Reason.FILE_CAPABILITIES: lambda: ask(
        pod(QUICK | {"securityContext": {"allowPrivilegeEscalation": False}})
    ),
    Reason.PROCESS_ONE: lambda: ask(pod(container("a", "/init"))),
    Reason.NATIVE_SIDECAR: lambda: ask(pod(container("a", "/a", restartPolicy="Always"))),
    Reason.MESH_INIT_CONTAINER: lambda: ask(pod(container("istio-init", "/a"))),
    Reason.LONG_RUNNING: lambda: sleep(pod(restartPolicy="Always"), containers=["*"]),
    Reason.NAME_CONFLICT: lambda: ask(pod(container("podsettle-linger", "/x"), QUICK)),
    Reason.HELPER_IMAGE_MISSING: lambda: ask(pod(QUICK), SLEEP, OperatorSettings()),
    Reason.HELPER_TOO_OLD: lambda: ask(
        pod(containers=[QUICK]),
        view(policy(remedies={"openFiles": {"soft": 65536}})),
        OperatorSettings(linger_image="linger:0.1.0"),
    ),
    Reason.NOT_NEEDED: lambda: ask(pod(QUICK), view(policy(), nodes=[node("n", "cri-o://1.36.0")])),
    Reason.SERVER_TOO_OLD: lambda: ask(pod(QUICK), OLD),
    Reason.RUNTIME_CLASS_MISSING: lambda: classed(pod()),
    Reason.RUNTIME_CLASS_CONFLICT: lambda: classed(
        pod(overhead={"cpu": "1"}), runtime_class("fast")
    ),
    Reason.RUNTIME_CLASS_UNHANDLED: lambda: ask(
        pod(),
        view(
            policy(remedies={"runtimeClass": {"name": "fast"}}),
            classes=[runtime_class("fast")],
            nodes=[node(handlers=["", "kata"])],
        ),
    ),
    Reason.RUNTIME_CLASS_PRESET: lambda: classed(pod(runtimeClassName="kata")),
    Reason.MEMORY_BELOW_MINIMUM: lambda: classed(
        pod(QUICK | {"resources": {"limits": {"memory": "1Mi"}}}),
        runtime_class("fast", annotations={"podsettle.dev/min-memory": "2Mi"}),
    ),
    Reason.ANNOTATION_NOT_ALLOWED: lambda: classed(
        pod(annotations={"devices.crio.io": "/dev/fuse"}),
        runtime_class("fast", annotations={"podsettle.dev/allowed-annotations": ""}),
    ),
    Reason.OTHER_WORKLOAD: lambda: relabel(pod(annotations={"io.openshift.builder": "x"}, **CLAIM)),
    Reason.NO_PERSISTENT_VOLUME: lambda: relabel(pod()),
    Reason.ANNOTATION_PRESET: lambda: relabel(
        pod(annotations={"try-skip-volume-selinux-label.crio.io": "false"}, **CLAIM)
    ),
    Reason.UNSTABLE_SELINUX_LEVEL: lambda: relabel(pod(**CLAIM)),
    Reason.RESTART_POLICY_PRESET: lambda: retried(pod(QUICK | {"restartPolicy": "Never"})),
    Reason.SYSTEM_POD: lambda: gated(pod(tolerations=[{"operator": "Exists"}])),
    Reason.MESH_TRAFFIC: lambda: gated(pod(container("istio-validation", "/x"))),
    Reason.SELINUX_CHANGE_POLICY_PRESET: lambda: change_policy(
        pod(securityContext={"seLinuxChangePolicy": "MountOption"})
    ),
    Reason.MALFORMED_POD: lambda: admitted(5),
    Reason.UNKNOWN_REMEDY: lambda: ask(
        pod(QUICK, annotations={"podsettle.dev/skip": "postinitsleep"})
    ),
    Reason.ANNOTATIONS_FULL: lambda: ask(pod(QUICK, annotations={"full": "x" * 256 * 1024})),
    Reason.ANNOTATION_IGNORED: lambda: ask(
        pod(annotations={"podsettle.dev/start-gate": "mysql:3306"}),
        view(policy(remedies={"startGate": {"waitFor": [{"dns": "a"}]}})),
    ),
    Reason.UNSUPPORTED_REVIEW: lambda: admitted(pod(QUICK), kind="ConversionReview"),
    Reason.INTERNAL_ERROR: defective,
}
OF_THE_SERVER = {Reason.OVERLOADED, Reason.DEADLINE_EXCEEDED}
OF_REMEDIES_THAT_SET_A_FIELD = {Reason.FIELD_PRESET, Reason.NOT_APPLICABLE}
"""General reasons. The tests of each remedy that declares them give the cases."""


def test_every_reason_of_the_core_has_a_test_case() -> None:
    others = OF_THE_SERVER | OF_REMEDIES_THAT_SET_A_FIELD | NOT_EVALUATED
    assert CASES.keys() == set(Reason) - others


@pytest.mark.parametrize("reason", CASES)
def test_the_case_of_a_reason_gives_that_reason(reason: Reason) -> None:
    assert reason in [outcome.reason for outcome in CASES[reason]().outcomes]
