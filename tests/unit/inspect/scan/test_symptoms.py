"""Tests of the symptoms: each is found, and each of its look-alikes is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support import planted_symptoms
from tests.support.planted_symptoms import (
    CRIO,
    LISTS_HANDLER,
    LOOK_ALIKES,
    NEW,
    NODE_HANDLERS,
    NODE_RUNTIMES,
    PLANTS,
    REQUESTS,
    RUNTIME_CLASS,
    WAITING,
    Plant,
    PlantedEvent,
)
from webhook.cluster.decode import read_node, read_runtime_class
from webhook.core.admission.decider import OperatorSettings
from webhook.core.cluster.nodes import Nodes
from webhook.core.pod import decode_pod
from webhook.core.policy.model import parse_policy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.remedies.post_init_sleep import PostInitSleep
from webhook.inspect.findings import Certainty, Finding
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.objects import (
    Condition,
    ContainerState,
    ContainerStatus,
    Event,
    LivePod,
    SigningRequest,
    StateDetails,
    Status,
    WorkloadName,
)
from webhook.inspect.scan.found_pods import FoundPods, selectable
from webhook.inspect.scan.proposals import propose
from webhook.inspect.scan.symptoms import SYMPTOMS, judge_pod
from webhook.inspect.scan.symptoms.base import FirstCertificate, ScanFacts
from webhook.inspect.scan.symptoms.kubelet_certificate import first_certificates

Json = dict[str, Any]

NOW = datetime(2026, 11, 22, 10, tzinfo=UTC)
JUDGED = [plant for plant in PLANTS if plant.symptom != "not-settled"]
JUDGED_LOOK_ALIKES = [plant for plant in LOOK_ALIKES if plant.symptom != "not-settled"]
NODE_CREATED = dict.fromkeys(NODE_RUNTIMES, NOW)


def decoded(type_: type[Any], document: Json) -> Any:
    """The struct of an object, as the paged reader decodes it."""
    return msgspec.json.decode(msgspec.json.encode(document), type=type_)


def live_pod(plant: Plant) -> LivePod:
    pod = plant.pod("ci")
    pod["metadata"] |= {"uid": plant.name, "creationTimestamp": planted_symptoms.stamp(NOW)}
    result: LivePod = decoded(LivePod, {**pod, "status": plant.with_state(NOW)})
    return result


def signing_request(node: str, *, created: datetime = NOW, approved: bool = True) -> SigningRequest:
    request = planted_symptoms.request(node)
    request["metadata"]["creationTimestamp"] = planted_symptoms.stamp(created)
    if approved:
        request["status"] = planted_symptoms.approval(created)
    result: SigningRequest = decoded(SigningRequest, request)
    return result


def all_requests() -> list[SigningRequest]:
    return [signing_request(node, approved=node != WAITING) for node in REQUESTS]


def facts_for(
    plant: Plant,
    requests: list[SigningRequest] | None = None,
    node_created: Mapping[str, datetime] = NODE_CREATED,
) -> ScanFacts:
    requests = all_requests() if requests is None else requests
    events = [
        decoded(Event, plant.event(index, "ci", plant.name, NOW))
        for index in range(len(plant.events))
    ]
    nodes = [
        read_node(planted_symptoms.node(name, runtime, NODE_HANDLERS.get(name)))
        for name, runtime in NODE_RUNTIMES.items()
    ]
    return ScanFacts(
        {node.name: node for node in nodes},
        {RUNTIME_CLASS["metadata"]["name"]: read_runtime_class(RUNTIME_CLASS)},
        first_certificates(requests, node_created, NOW),
        {live_pod(plant).key: events},
    )


def judge(plant: Plant, facts: ScanFacts | None = None) -> list[Finding]:
    facts = facts or facts_for(plant)
    return judge_pod(live_pod(plant), facts)


def plant_named(name: str) -> Plant:
    return next(plant for plant in (*PLANTS, *LOOK_ALIKES) if plant.name == name)


@pytest.mark.parametrize(("after", "is_found"), [(0, False), (1, False), (2, True)])
@pytest.mark.parametrize("grace", [0, 30])
def test_container_of_a_pod_that_was_deleted_before_its_end_was_stopped(
    after: int, is_found: bool, grace: int
) -> None:
    plant = plant_named("init-255")  # It ended a second after its start.
    ends = planted_symptoms.stamp(NOW + timedelta(seconds=after + grace))
    deleted = {"deletionTimestamp": ends, "deletionGracePeriodSeconds": grace}
    changed = replace(plant, metadata={**plant.metadata, **deleted})
    assert bool(judge(changed)) is is_found


@pytest.mark.parametrize("name", ["init-255", "umount", "relabel"])
def test_pods_on_windows_have_no_symptom_of_a_runtime_for_linux(name: str) -> None:
    facts = facts_for(plant := plant_named(name))
    document = planted_symptoms.node(plant.node, NODE_RUNTIMES[plant.node])
    document["metadata"]["labels"]["kubernetes.io/os"] = "windows"
    assert judge(plant, replace(facts, nodes={plant.node: read_node(document)})) == []
    windows = replace(plant, spec={**plant.spec, "os": {"name": "windows"}})
    for each in (plant, windows):
        found = judge(each, replace(facts_for(each), nodes={}))
        assert bool(found) is (each is plant)


def test_every_symptom_is_planted_twice_and_has_two_look_alikes() -> None:
    symptoms = {symptom.id for symptom in SYMPTOMS}
    for plants in (JUDGED, JUDGED_LOOK_ALIKES):
        names = [plant.symptom for plant in plants]
        assert symptoms == set(names)
        assert all(names.count(symptom) >= 2 for symptom in symptoms)


@pytest.mark.parametrize(
    ("name", "lowered"),
    [
        ("init-255", Certainty.POSSIBLE),
        ("umount", Certainty.POSSIBLE),
        ("relabel", Certainty.LIKELY),
        ("create-error", Certainty.POSSIBLE),
    ],
)
def test_finding_on_a_node_that_is_gone_is_less_certain(name: str, lowered: Certainty) -> None:
    plant = plant_named(name)
    facts = replace(facts_for(plant), nodes={})
    (found,) = judge(plant, facts)
    assert found.certainty is lowered
    assert any("gone" in evidence.value for evidence in found.evidence)


def test_exit_code_255_of_an_earlier_run_is_found_in_the_last_state() -> None:
    plant = plant_named("init-255")
    (ended,) = plant.status["initContainerStatuses"]
    retried = {**ended, "state": {"running": {"startedAt": 5}}, "lastState": ended["state"]}
    status = {**plant.status, "initContainerStatuses": [retried]}
    (found,) = judge(replace(plant, status=status))
    assert "lastState.terminated" in found.evidence[0].field


def with_init_container(change: Json) -> Plant:
    """A pod whose init container, which ended with 255, has other fields."""
    plant = plant_named("init-255")
    (container,) = plant.spec["initContainers"]
    container = {**container, **change}
    (status,) = plant.status["initContainerStatuses"]
    return replace(
        plant,
        spec={**plant.spec, "initContainers": [container]},
        status={"initContainerStatuses": [{**status, "name": container["name"]}]},
    )


def variant(name: str, suffix: object, certainty: Certainty | None, **changes: Any) -> Plant:
    """Return a planted pod with other fields, and how certain it is that it has the symptom."""
    plant = plant_named(name)
    if "statuses" in changes:
        changes["status"] = {**plant.status, **changes.pop("statuses")}
    return replace(plant, name=f"{name}: {suffix}", certainty=certainty, **changes)


def init_ended(*args: Any, **more: Any) -> Json:
    return {"initContainerStatuses": [planted_symptoms.ended(*args, **more)]}


def main_runs(started: int, restarts: int = 0) -> Json:
    return {"containerStatuses": [planted_symptoms.running("main", started, restarts)]}


def variants_of_exit_255() -> Iterator[Plant]:
    gates = {"name": "podsettle-kubelet-gate"}, {"name": "podsettle-start-gate"}
    for change in ({"restartPolicy": "Always"}, *gates):
        yield replace(with_init_container(change), name=f"init-255: {change}", certainty=None)
    more: Json
    for certainty, finished, more in (
        (Certainty.LIKELY, 1, {"reason": "Error"}),
        (None, 1, {"reason": "seccomp killed"}),
        (None, 1, {"reason": "ContainerStatusUnknown"}),
        (None, 1, {"signal": 9}),
        (None, 1, {"message": "exec /entrypoint.sh: no such file or directory\n"}),
        (Certainty.LIKELY, 1, {"message": "exec /entrypoint.sh: done\nall files written\n"}),
        (None, -1, {}),
    ):
        ended = init_ended("prepare", 255, 0, finished, **more)
        yield variant("init-255", f"{finished} {more}", certainty, status=ended)
    ended = init_ended("prepare", 255, -3600, -3600)
    yield variant("init-255", "before the pod", None, status=ended)
    main = {"name": "main", "command": ["make"], "restartPolicy": "Never"}
    spec = {"restartPolicy": "Always", "containers": [main]}
    yield variant("step-255", "ends alone", Certainty.LIKELY, spec=spec)
    killing = PlantedEvent("Killing", "", "spec.containers{main}", -20, 60)
    yield variant("step-255", "an earlier event", Certainty.LIKELY, events=(killing,))


def variants_of_slow_umount() -> Iterator[Plant]:
    ended = init_ended("init-proxy", 0, -3601, -3600)
    yield variant("umount-unknown", "ended before the pod", None, statuses=ended)
    # The kubelet may have begun with the container early, and waited for a ConfigMap.
    there = {"initContainers": [planted_symptoms.init("init-proxy", "registry.example/app:1")]}
    yield variant("umount-unknown", "image that is there", Certainty.POSSIBLE, spec=there)
    sidecar = {**planted_symptoms.init("init-proxy"), "restartPolicy": "Always"}
    yield variant("umount-unknown", "sidecar", None, spec={"initContainers": [sidecar]})
    yield variant("umount-unknown", "restarted", None, statuses=main_runs(923, 1))
    # The neighbour may have started first: its first start is no longer in the status.
    two = [{"name": name, "image": "registry.example/app:1"} for name in ("main", "other")]
    other = planted_symptoms.running("other", 930, restarts=1)
    both = {"containerStatuses": [planted_symptoms.running("main", 923), other]}
    spec = {**plant_named("umount-unknown").spec, "containers": two}
    yield variant("umount-unknown", "neighbour restarted", None, spec=spec, statuses=both)
    pulled = PlantedEvent(*plant_named("umount").events[0])
    for message, certainty in (
        ('Container image "app" already present on machine', Certainty.LIKELY),
        ('Container image "app" already present on machine and can be accessed', Certainty.LIKELY),
        ('Successfully pulled image "app" in 1m2.5s', Certainty.LIKELY),
        ('Successfully pulled image "app" in 850ms (1h2m3s including waiting)', None),
        ('Successfully pulled image "app" in 7m41s (7m41s including waiting).', None),
        ("a text that no kubelet writes", Certainty.POSSIBLE),
        ('Successfully pulled image "app" in 99999999999999999999999h', Certainty.POSSIBLE),
    ):
        yield variant("umount", message, certainty, events=(pulled._replace(message=message),))
    of_other = pulled._replace(path="spec.initContainers{init-proxy}")
    yield variant("umount", "pull of another", Certainty.POSSIBLE, events=(of_other,))
    # A scan looks up the events of the pods that are found without them.
    for name in ("umount", "umount-pull"):
        yield variant(name, "no events", Certainty.POSSIBLE, events=())
    yield variant("umount-soon", "no events", None, events=())


def variants_of_relabelling() -> Iterator[Plant]:
    for source, certainty in (
        *((each, Certainty.CERTAIN) for each in ("persistentVolumeClaim", "ephemeral", "emptyDir")),
        *((each, Certainty.POSSIBLE) for each in ("hostPath", "projected")),
    ):
        data = {"name": "data", source: {}}
        yield variant("relabel", source, certainty, spec={"volumes": [data]})
    token = {"name": "kube-api-access-2xkq7", "projected": {"sources": []}}
    yield variant("relabel", "token", None, spec={"volumes": [token]})
    reserved = "Error: error reserving ctr name k8s_app for id 59ef: name is reserved"
    event = (("Failed", reserved, "spec.containers{main}"),)
    yield variant("relabel", "reserved name", Certainty.LIKELY, events=event)
    yield variant("relabel", "reserved name without a volume", None, events=event, spec={})
    # CRI-O reads the type of a container first.
    plant = plant_named("relabel")
    own = {"securityContext": {"seLinuxOptions": {"type": "container_t"}}}
    spc = {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}
    containers = [{**each, **own} for each in plant.pod("ci")["spec"]["containers"]]
    spec = {**plant.spec, **spc, "containers": containers}
    yield variant("relabel", "own type", Certainty.CERTAIN, spec=spec)


def variants_of_certificates_and_handlers() -> Iterator[Plant]:
    for started, certainty in ((-3_600, None), (14, Certainty.POSSIBLE)):
        yield variant("early", started, certainty, status=main_runs(started))
    agent = planted_symptoms.owned_by("DaemonSet", "agent")
    yield variant("early", "DaemonSet", None, metadata=agent)
    gate = planted_symptoms.init("podsettle-kubelet-gate")
    for spec in ({"priorityClassName": "system-node-critical"}, {"initContainers": [gate]}):
        yield variant("early", list(spec), None, spec=spec)
    crio = "failed to find runtime handler overlay from runtime list map[runc:0xc0]"
    for message, certainty in (
        ('no runtime for "other" is configured', None),
        (crio, Certainty.CERTAIN),
    ):
        events = (("FailedCreatePodSandBox", message, ""),)
        yield variant("handler", message, certainty, events=events)
    for phase in ("Running", "Succeeded"):
        yield variant("handler", phase, None, status={"phase": phase})
    yield variant("handler", "listed later", None, node=LISTS_HANDLER)
    yield variant("unlisted-handler", "node without a list", None, node=CRIO)


def variants_of_slow_mounts() -> Iterator[Plant]:
    timeout = "Unable to attach or mount volumes: unmounted volumes=[data]: "
    for cause in ("timed out waiting for the condition", "context deadline exceeded"):
        events = (("FailedMount", timeout + cause, ""),)
        yield variant("fs-group", cause, Certainty.POSSIBLE, events=events)
    # Failures that pass neither show nor end a finding.
    for volume, cause in (
        ("kube-api-access", "failed to sync configmap cache: timed out waiting for the condition"),
        ("kube-api-access", 'object "ci"/"kube-root-ca.crt" not registered'),
        ("pvc-1", "applyFSGroup failed for vol 1: stale handle"),
    ):
        events = (("FailedMount", f'MountVolume.SetUp failed for volume "{volume}" : {cause}', ""),)
        yield variant("fs-group", cause, None, events=events)
        yield variant("slow-mount", cause, Certainty.POSSIBLE, events=events)
    # A node was restarted, or its kubelet was upgraded to one that writes the condition.
    for started, restarts, certainty in (
        (463, 0, None),
        (470, 1, None),
        (464, 0, Certainty.POSSIBLE),
    ):
        statuses = main_runs(started, restarts)
        yield variant("slow-mount", (started, restarts), certainty, statuses=statuses)
    scheduled, ready = plant_named("slow-mount").status["conditions"]
    for seconds, certainty in ((119, None), (120, Certainty.POSSIBLE)):
        status = {"conditions": [scheduled, {**ready, "lastTransitionTime": seconds}]}
        yield variant("slow-mount", f"{seconds} s", certainty, status=status)
    attached = PlantedEvent("SuccessfulAttachVolume", "", "", 5, 600)
    yield variant("slow-mount", "attached early", Certainty.POSSIBLE, events=(attached,))


VARIANTS = [
    *variants_of_exit_255(),
    *variants_of_slow_umount(),
    *variants_of_relabelling(),
    *variants_of_certificates_and_handlers(),
    *variants_of_slow_mounts(),
]


@pytest.mark.parametrize(
    "plant", [*JUDGED, *JUDGED_LOOK_ALIKES, *VARIANTS], ids=lambda plant: plant.name
)
def test_pod_has_its_symptom_alone_with_its_certainty_or_none(plant: Plant) -> None:
    expected = [(plant.symptom, plant.certainty)] if plant.certainty else []
    found = judge(plant)
    assert [(each.symptom, each.certainty) for each in found] == expected
    assert all(each.evidence and each.sentence for each in found)


HELPER = "/podsettle/linger"
COPYING = {"name": "podsettle-linger"}
SHORT_CONTAINER = ["/linger", "--min-lifetime", "500ms", "--"]
HELPER_OPTIONS = PostInitSleep.model_validate({"minLifetime": "2s"}).wrapper.helper_command[1:]


@pytest.mark.parametrize(
    ("change", "time"),
    [
        ({"command": ["/podsettle/linger", *HELPER_OPTIONS, "init"]}, " for at least 2 s"),
        ({"command": [*PostInitSleep().wrapper.in_shell["sh"], "sh"]}, " for at least 500 ms"),
        (COPYING | {"command": ["/linger", *HELPER_OPTIONS, "/linger"]}, " for at least 2 s"),
        (COPYING | {"command": [*SHORT_CONTAINER, "/linger"]}, " for at least 500 ms"),
        (
            {"command": [HELPER, "--open-files", "9", "--sleep=2s", "--", "init"]},
            " for at least 2 s",
        ),
        ({"command": ["/podsettle/linger", "--", "init"]}, ""),
        ({"command": ["/podsettle/linger", "--sleep", "\x1b", "--min-lifetime", "1s"]}, ""),
        ({"command": ["sh", "-c", ": podsettle; script", "podsettle"]}, ""),
        (
            {"command": ["/vault/vault-env"], "args": [HELPER, "--sleep", "2s", "--", "init"]},
            " for at least 2 s",
        ),
    ],
    ids=[
        *("helper", "shell", "copy of the helper", "copy beside short containers"),
        *("options in another order", "no times", "malformed time", "no script"),
        "behind another program",
    ],
)
def test_exit_code_255_of_a_container_that_is_kept_alive_is_only_possible(
    change: Json, time: str
) -> None:
    (found,) = judge(with_init_container(change))
    assert found.certainty is Certainty.POSSIBLE
    assert found.container is not None
    assert found.container.kept_alive
    assert found.sentence.endswith(
        f", although postInitSleep keeps it alive{time}: either its program ended with 255, or "
        "`minLifetime` is too short"
    )


@pytest.mark.parametrize("created", [NOW, None])
def test_exit_code_255_at_a_time_that_the_kubelet_does_not_know_is_not_found(
    created: datetime | None,
) -> None:
    plant = plant_named("init-255")
    pod = live_pod(plant)
    unknown = datetime.fromtimestamp(0, UTC)
    terminated = StateDetails(exit_code=255, started_at=unknown, finished_at=unknown)
    ended = ContainerStatus("prepare", ContainerState(terminated=terminated))
    changed = msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, creation_timestamp=created),
        status=msgspec.structs.replace(pod.status, init_container_statuses=[ended]),
    )
    assert judge_pod(changed, facts_for(plant)) == []


def test_gap_between_two_init_containers_is_found() -> None:
    plant = plant_named("umount-unknown")
    spec = {"initContainers": [planted_symptoms.init("first"), planted_symptoms.init("second")]}
    status = {
        "initContainerStatuses": [
            planted_symptoms.ended("first", 0, 0, 1),
            planted_symptoms.running("second", 100),
        ]
    }
    (found,) = judge(replace(plant, spec=spec, status=status))
    assert found.sentence.startswith("second started 99 s after init container first had ended")


@pytest.mark.parametrize(
    "reason", ["FailedCreatePodSandBox", "FailedMount", "NetworkNotReady", "SandboxChanged"]
)
@pytest.mark.parametrize(
    ("first", "last", "path", "found"),
    [
        (600, 600, "", 0),
        (0, 2, "", 0),
        (923, 999, "", 0),
        (-9, 999, "", 0),
        (0, 1, "", 1),
        (924, 999, "", 1),
        (600, 600, "spec.initContainers{init-proxy}", 1),
    ],
)
def test_event_of_the_pod_in_a_gap_that_names_another_cause_explains_it(
    reason: str, first: int, last: int, path: str, found: int
) -> None:
    plant = plant_named("umount")
    other = PlantedEvent(reason, "network is not ready", path, first, last)
    assert len(judge(replace(plant, events=(*plant.events, other)))) == found


STAGES = (
    "container creating",
    "container storage creation",
    "container device creation",
    "container storage start",
    "container spec configuration",
    "container runtime creation",
    "unknown",
)
"""The stages of CRI-O 1.36.3 (`server/container_create.go`) in which it relabels no volume."""


@pytest.mark.parametrize("stage", STAGES)
def test_reserved_name_at_a_stage_without_volumes_ends_each_uncertain_finding(stage: str) -> None:
    named = f"Error: Currently at stage {stage}: error reserving ctr name k8s_app: name is reserved"
    unnamed = "Error: error reserving ctr name k8s_app for id 59ef: name is reserved"
    events = [("Failed", text, "spec.containers{main}") for text in (named, unnamed)]
    relabel, waiting = plant_named("relabel"), plant_named("create-error")
    assert judge(replace(relabel, events=(events[0],))) == []
    assert judge(replace(relabel, events=tuple(events))) == []
    assert judge(replace(waiting, events=(events[0],))) == []
    # At another time, the container was at its volumes.
    (found,) = judge(replace(relabel, events=(events[0], *relabel.events)))
    assert found.certainty is Certainty.CERTAIN


@pytest.mark.parametrize(
    ("stage", "found"),
    [*((stage, 0) for stage in STAGES), ("container volume configuration", 1)],
)
def test_stage_in_the_state_of_a_waiting_container_decides(stage: str, found: int) -> None:
    message = f"Currently at stage {stage}: context deadline exceeded: name is reserved"
    waiting = {"reason": "CreateContainerError", "message": message}
    status = {
        "containerStatuses": [planted_symptoms.container_status("main", {"waiting": waiting})]
    }
    assert len(judge(replace(plant_named("create-error"), status=status))) == found


def test_only_the_first_request_of_a_node_counts() -> None:
    # A renewal half a year later: the kubelet serves with its old certificate meanwhile.
    later = NOW + timedelta(days=180)
    renewal = signing_request(NEW, created=later)
    plant = plant_named("early")
    assert judge(plant, facts_for(plant, [renewal])) == []
    pod_after_renewal = replace(
        plant, status={"containerStatuses": [planted_symptoms.running("main", 180 * 86_400 + 5)]}
    )
    assert judge(pod_after_renewal, facts_for(plant, [renewal])) == []
    requests = [renewal, signing_request(NEW)]
    assert [each.certainty for each in judge(plant, facts_for(plant, requests))] == ["certain"]
    assert judge(plant, facts_for(plant, requests, {})) == []


def with_conditions(request: SigningRequest, *conditions: Condition) -> SigningRequest:
    return msgspec.structs.replace(request, status=Status([*conditions]))


# A kubelet makes another request if its first one is not approved in time.
FIRST, SECOND, BEFORE = (
    signing_request(NEW, created=NOW + timedelta(minutes=minutes)) for minutes in (0, 15, -60)
)
PENDING = signing_request(NEW, approved=False)
APPROVED = Condition(type="Approved", status="True", last_transition_time=NOW)
FAILED = with_conditions(FIRST, APPROVED, Condition(type="Failed", status="True"))
UNTIMED = with_conditions(FIRST, Condition(type="Approved", status="True"))
BY_PERSON = msgspec.structs.replace(FIRST, spec=msgspec.structs.replace(FIRST.spec, username=NEW))
FIRST_AT = NOW + planted_symptoms.APPROVAL_DELAY
SECOND_AT = FIRST_AT + timedelta(minutes=15)


@pytest.mark.parametrize(
    ("requests", "approved"),
    [
        *(([*each], [SECOND_AT]) for each in ((PENDING, SECOND), (SECOND, PENDING))),
        ([SECOND, PENDING, SECOND], [SECOND_AT]),
        ([SECOND, FIRST], [FIRST_AT]),
        # A request of an earlier node of the same name.
        ([BEFORE], []),
        ([BEFORE, PENDING], [None]),
        # The signer has failed.
        ([FAILED], [None]),
        ([FAILED, SECOND], [SECOND_AT]),
        ([UNTIMED], []),
        ([BY_PERSON], []),
    ],
)
def test_certificate_is_the_one_that_was_approved_first(
    requests: list[SigningRequest], approved: list[datetime | None]
) -> None:
    found = first_certificates(requests, NODE_CREATED, NOW)
    expected = [FirstCertificate(f"csr-{NEW}", each, NODE_CREATED[NEW]) for each in approved]
    assert [*found.values()] == expected


@pytest.mark.parametrize(
    ("age", "newest", "certainty"),
    [
        (timedelta(minutes=59), timedelta(), Certainty.CERTAIN),
        (timedelta(hours=3), timedelta(hours=2, minutes=30), Certainty.POSSIBLE),
        (timedelta(hours=3), timedelta(hours=2), None),
        (timedelta(hours=3), timedelta(), None),
    ],
)
@pytest.mark.parametrize("denied", [False, True], ids=["pending", "denied"])
def test_request_without_approval_means_little_once_an_approved_one_may_be_deleted(
    age: timedelta, newest: timedelta, certainty: Certainty | None, denied: bool
) -> None:
    requests = [
        signing_request(NEW, created=NOW + each, approved=False) for each in {timedelta(), newest}
    ]
    if denied:
        status = Status([Condition(type="Denied", status="True")])
        requests = [msgspec.structs.replace(each, status=status) for each in requests]
    plant = plant_named("early")
    found = first_certificates(requests, NODE_CREATED, NOW + age)
    judged = judge(plant, replace(facts_for(plant), first_certificates=found))
    assert [each.certainty for each in judged] == ([certainty] if certainty else [])


MINUTES = st.integers(0, 59)


@given(age=MINUTES, created=MINUTES, started=MINUTES, approved=st.none() | MINUTES)
def test_oldest_request_of_a_node_is_its_first_for_an_hour(
    age: int, created: int, started: int, approved: int | None
) -> None:
    request = signing_request(NEW, created=NOW + timedelta(minutes=created), approved=False)
    approved_at = None
    if approved is not None:
        approved_at = NOW + timedelta(minutes=created + approved)
        condition = Condition(type="Approved", status="True", last_transition_time=approved_at)
        request = msgspec.structs.replace(request, status=Status([condition]))
    now = NOW + timedelta(minutes=max(age, created))
    found = first_certificates([request], NODE_CREATED, now)
    assert found == {NEW: FirstCertificate(f"csr-{NEW}", approved_at, NODE_CREATED[NEW])}
    plant = plant_named("early")
    status = {"containerStatuses": [planted_symptoms.running("main", 60 * started)]}
    facts = replace(facts_for(plant), first_certificates=found)
    judged = [each.certainty for each in judge(replace(plant, status=status), facts)]
    is_early = approved_at is None or approved_at > NOW + timedelta(minutes=started)
    assert judged == ([Certainty.CERTAIN] if is_early else [])


def test_pod_that_started_before_its_node_was_registered_had_another_certificate() -> None:
    plant = plant_named("early")
    for hours, expected in ((0, [Certainty.CERTAIN]), (1, [])):
        registered = {NEW: NOW + timedelta(hours=hours)}
        request = signing_request(NEW, created=registered[NEW])
        facts = facts_for(plant, [request], registered)
        assert [each.certainty for each in judge(plant, facts)] == expected


@pytest.mark.parametrize(("minutes", "found"), [(59, True), (60, False)])
def test_late_request_may_be_a_renewal_once_an_earlier_one_may_be_deleted(
    minutes: int, found: bool
) -> None:
    late = signing_request(NEW, created=NOW + timedelta(minutes=13), approved=False)
    now = NOW + timedelta(minutes=minutes)
    assert bool(first_certificates([late], NODE_CREATED, now)) is found


def test_late_approval_is_only_possibly_the_first_on_a_node_older_than_an_hour() -> None:
    approved = signing_request(NEW)
    found = first_certificates([approved], NODE_CREATED, NOW + timedelta(hours=2))
    plant = plant_named("early")
    (judged,) = judge(plant, replace(facts_for(plant), first_certificates=found))
    assert judged.certainty is Certainty.POSSIBLE
    assert "an earlier request" in judged.sentence


def test_sentence_about_a_handler_in_an_event_is_in_the_past_tense() -> None:
    (found,) = judge(plant_named("handler"))
    assert "had no runtime handler overlay at the time of the event" in found.sentence


@pytest.mark.parametrize("field", ["kind", "namespace", "name", "uid"])
def test_event_that_names_another_object_in_one_field_says_nothing_about_a_pod(field: str) -> None:
    plant = plant_named("handler")
    event = plant.event(0, "ci", plant.name, NOW)
    key = decoded(Event, event).involved_object.pod_key
    assert key == live_pod(plant).key
    event["involvedObject"][field] = "another"
    assert decoded(Event, event).involved_object.pod_key != key


def test_handler_in_an_event_is_likely_if_the_class_is_not_known() -> None:
    plant = plant_named("handler")
    facts = replace(facts_for(plant), runtime_classes={})
    assert [each.certainty for each in judge(plant, facts)] == [Certainty.LIKELY]


VOLUMES: dict[str, Json] = {
    "data": {"persistentVolumeClaim": {"claimName": "data"}},
    "scratch": {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
    "certs": {"secret": {"secretName": "certs"}},
    "cache": {"emptyDir": {}},
}
CLAIMS = {"data", "scratch"}
NAMES = st.sets(st.sampled_from(sorted(VOLUMES)))


@given(NAMES, NAMES, NAMES, st.booleans())
def test_timeout_of_a_mount_counts_only_if_an_attached_claim_is_not_mounted(
    unmounted: set[str], unattached: set[str], failed: set[str], has_failed: bool
) -> None:
    """A kubelet that does not name failed volumes lists all volumes as unattached."""
    lists = (
        f"unmounted volumes=[{' '.join(unmounted)}], unattached volumes=[{' '.join(unattached)}]"
    )
    lists += f", failed to process volumes=[{' '.join(failed)}]" if has_failed else ""
    message = f"Unable to attach or mount volumes: {lists}: timed out waiting for the condition"
    waiting = unmounted & CLAIMS - (unattached | failed if has_failed else set())
    plant = plant_named("fs-group")
    volumes: list[Json] = [{"name": name, **source} for name, source in VOLUMES.items()]
    changed = replace(
        plant, spec={**plant.spec, "volumes": volumes}, events=(("FailedMount", message, ""),)
    )
    assert bool(judge(changed)) is bool(waiting)


TIMEOUT = (
    "FailedMount",
    "Unable to attach or mount volumes: unmounted volumes=[data]: context deadline exceeded",
    "",
)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("FailedMount", 'MountVolume.SetUp failed for volume "certs" : secret "certs" not found'),
        ("FailedMount", 'MountVolume.MountDevice failed for volume "pvc-1" : rpc error: code = '
         "DeadlineExceeded desc = context deadline exceeded"),
        ("FailedMount", 'MountVolume.WaitForAttach failed for volume "pvc-1" : timed out'),
        ("FailedMount", "Unable to attach or mount volumes: unmounted volumes=[data], unattached "
         "volumes=[], failed to process volumes=[data]: error processing PVC ci/data: PVC is not "
         "bound"),
        ("FailedMount", "Unable to attach or mount volumes: unmounted volumes=[data other], "
         "unattached volumes=[], failed to process volumes=[other]: error processing PVC ci/other: "
         "failed to fetch PVC from API server: context deadline exceeded"),
        ("FailedAttachVolume", 'AttachVolume.Attach failed for volume "pvc-1" : not found'),
        ("FailedAttachVolume", 'Waiting for detach for volume "pvc-1" Volume is already used'),
        ("FailedCreatePodSandBox", "Failed to create pod sandbox: plugin type=x failed (add)"),
        ("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: no plugin"),
        ("NetworkNotReady", "network is not ready: container runtime network not ready"),
        ("FailedCreatePodContainer", "unable to ensure pod container exists: no space left"),
        ("Failed", "error making pod data directories: mkdir pods/x: no space left on device"),
        ("VolumePermissionChangeInProgress", "Setting volume ownership for uid/volumes/"
         "kubernetes.io~empty-dir/cache is taking longer than expected"),
    ],
)  # fmt: skip
def test_event_that_names_another_cause_ends_an_uncertain_finding_about_owners(
    reason: str, message: str
) -> None:
    cause, plant = (reason, message, ""), plant_named("fs-group")
    assert judge(replace(plant, events=(cause,))) == []
    assert judge(replace(plant, events=(TIMEOUT, cause))) == []
    assert judge(replace(plant_named("slow-mount"), events=(cause,))) == []
    (found,) = judge(replace(plant, events=(*plant.events, cause)))
    assert found.certainty is Certainty.CERTAIN


def test_finding_advises_the_release_that_fixes_the_runtime_of_the_node() -> None:
    (found,) = judge(plant_named("init-255"))
    assert found.advice == f"Upgrade cri-o on node {CRIO} to 1.33.13 or later."


def managed_by_creator(*labels: str) -> list[Json]:
    owned: Json = {"f:metadata": {"f:labels": {f"f:{each}": {} for each in labels}}}
    fields = {**owned, "f:spec": {"f:containers": {}}}
    return [{"time": "2026-11-22T10:00:00Z", "fieldsV1": fields}]


LABEL_KINDS: dict[str, tuple[Json, Json, str | None, bool]] = {
    "none": ({}, {}, None, False),
    "same": ({"app": "ci"}, {"app": "ci"}, "ci", False),
    "completed": (
        {"workflows.argoproj.io/completed": "true"},
        {"workflows.argoproj.io/completed": "false"},
        None,
        False,
    ),
    "topology": (
        {"topology.kubernetes.io/zone": "a", "topology.k8s.io/region": "eu"},
        {},
        None,
        False,
    ),
    "number": ({"airflow-worker": "17"}, {"airflow-worker": "18"}, None, False),
    "generated": ({"build": "nightly-x7k2p"}, {"build": "nightly-q9w4z"}, None, False),
    "hash": ({"spark": f"spark-{'0f' * 16}"}, {"spark": f"spark-{'e1' * 16}"}, None, False),
    "date": (
        {"run_id": "manual__2026-11-22T1000", "tier": "ci"},
        {"run_id": "manual__2026-11-23T1000", "tier": "ci"},
        "ci",
        False,
    ),
    **{
        key: ({key: "one", "team": "ci"}, {key: "two", "team": "ci"}, "ci", False)
        for key in (
            *("rollouts-pod-template-hash", "apps.kruise.io/cloneset-instance-id"),
            *("airflow_version", "spark-version", "istio.io/rev", "chart", "git-commit"),
            "leaderworkerset.sigs.k8s.io/template-revision-hash",
            *("vault-active", "vault-sealed", "cnpg.io/instanceRole", "role", "ci.example/status"),
            *("my-operator/finished", "node-master", "example.com/phase", "example.com/healthy"),
            *("job.runner.gitlab.com/ref", "woodpecker-ci.org/branch", "ci.example/commit-branch"),
            *("woodpecker-ci.org/event", "run_id", "dagster/run-id", "app/build-id"),
            *("appVersion", "gitCommit", "imageTag", "tag", "build-number", "ci/jobId"),
            *("prefect.io/flow-run-name", "jobset.sigs.k8s.io/jobset-name", "deploy-timestamp"),
        )
    },
    **{
        key: ({key: "x", "z": "ci"}, {"z": "ci"}, "ci", False)
        for key in ("already_checked", "ray.io/serve", "velero.io/restore-name")
    },
    "admitted by Kueue": (
        {"kueue.x-k8s.io/cluster-queue-name": "cq", "kueue.x-k8s.io/managed": "true"},
        {"kueue.x-k8s.io/managed": "true"},
        "true",
        False,
    ),
    "Job of Kueue": ({"kueue.x-k8s.io/podset": "m"}, {"kueue.x-k8s.io/podset": "m"}, "m", False),
    "Velero's own": ({"velero.io/node": "ci"}, {"velero.io/node": "ci"}, "ci", False),
    "generated with more digits": (
        {"jenkins/label": "a_1-0d3zr", "team": "ci"},
        {"jenkins/label": "a_2-1c3zq", "team": "ci"},
        "ci",
        False,
    ),
    **{
        value: ({"build": value, "team": "ci"}, {"build": later, "team": "ci"}, "ci", False)
        for value, later in (
            ("2026.11.22", "2026.11.23"),
            ("20261122T101500Z", "20261123T101500Z"),
            ("1a2b3c4", "9e8d7c6"),
            ("main-1a2b3c4d", "main-9e8d7c6b"),
        )
    },
    **{
        name: ({"app": name, "tag": name}, {"app": name, "tag": "new"}, name, False)
        for name in ("facade", "decade1", "web", "ubuntu2004.1130", "acct820190112345")
    },
    "later": ({"role": "primary", "z": "ci"}, {"z": "ci"}, "ci", True),
    "all later": ({"role": "primary"}, {}, None, True),
}
"""By kind: the labels of a running pod, those of the next pod, the value that a policy selects, and
whether the pod has `managedFields`."""


@pytest.mark.parametrize("kind", LABEL_KINDS)
@pytest.mark.parametrize("owned", [True, False])
def test_each_proposal_changes_the_next_pod_of_each_workload_that_it_claims(
    kind: str, owned: bool
) -> None:
    labels, next_labels, selected, is_managed = LABEL_KINDS[kind]
    claimed = set()
    for plant in JUDGED:
        owner = planted_symptoms.owned_by("Job", "build") if owned else {}
        metadata: Json = {**owner, "labels": labels}
        if is_managed:
            metadata["managedFields"] = managed_by_creator(*next_labels)
        # A pod that restarts belongs to no run.
        spec = {**plant.spec, "restartPolicy": "Never"}
        running = replace(plant, metadata=metadata, spec=spec)
        findings = judge(running, facts := facts_for(running))
        defect = next(each.defect for each in SYMPTOMS if each.id == plant.symptom)
        if defect is None:
            continue
        view = Snapshot(nodes=Nodes(facts.nodes.values()), runtime_classes=facts.runtime_classes)
        cluster = KnownCluster(view, OperatorSettings(linger_image="registry.example/linger:1"))
        found = FoundPods(cluster, defect)
        found.add(live_pod(running), findings)
        policy, preview = propose(found, cluster) or ("", None)
        if not policy or preview is None:
            continue
        assert preview.changes == 1
        document = yaml.safe_load(policy)
        selector = document["spec"].get("podSelector")
        assert (list(selector["matchLabels"].values()) if selector else None) == (
            [selected] if selected else None
        )
        document["spec"]["action"] = "Mutate"
        following = replace(running, metadata={**owner, "labels": next_labels}).pod("ci")
        del following["spec"]["nodeName"]
        pod = decode_pod(msgspec.json.encode(following))
        decision = cluster.with_policies([parse_policy(document)]).decide(pod, "ci")
        assert any(each.changed for each in decision.outcomes), plant.name
        claimed.add(plant.symptom)
    assert len(claimed) == 4


CLUSTER = KnownCluster(Snapshot(), OperatorSettings())


def found_pods(name: str, *metadata: Json, **options: Any) -> FoundPods:
    """The pods of a plant that differ in their metadata, with what is found at them."""
    plant = plant_named(name)
    (defect,) = (each.defect for each in SYMPTOMS if each.id == plant.symptom and each.defect)
    found = FoundPods(CLUSTER, defect, **options)
    for each in metadata:
        running = replace(plant, metadata=each)
        found.add(live_pod(running), judge(running))
    return found


def exists(key: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("kind", "owner", "labels"),
    [
        ("Cluster", "pg", {"cnpg.io/cluster": "pg"}),
        ("Cluster", "pg-1", {"cnpg.io/cluster": "pg-1"}),
        ("CloneSet", "web", {"app": "web"}),
        ("ReplicationController", "web-1", {"app": "web-1"}),
    ],
)
def test_label_with_the_name_of_an_owner_counts_for_pods_that_restart(
    kind: str, owner: str, labels: dict[str, str]
) -> None:
    metadata = planted_symptoms.owned_by(kind, owner, **labels, own="fs-group")
    assert found_pods("fs-group", metadata).pod_selector == {"matchLabels": labels}
    assert found_pods("init-255", metadata).pod_selector != {"matchLabels": labels}


def test_policy_does_not_select_one_rollout_of_a_deployment_config() -> None:
    labels = {"deployment": "db-3", "deploymentconfig": "db"}
    metadata = planted_symptoms.owned_by("ReplicationController", "db-3", **labels)
    assert found_pods("fs-group", metadata).pod_selector == {
        "matchLabels": {"deploymentconfig": "db"}
    }


@pytest.mark.parametrize(
    ("labels", "others", "selector"),
    [
        ({"openshift.io/build.name": "app-3"}, None, exists("openshift.io/build.name")),
        ({"ci.example/a": "x", "a": "x"}, {"ci.example/a": "y"}, exists("ci.example/a")),
        ({"ci.example/a": "x-1", "z": "ci"}, None, {"matchLabels": {"z": "ci"}}),
        ({"ci.example/a": "x"}, {"ci.example/b": "x"}, {}),
        ({"build": "app-3", "batch.kubernetes.io/controller-uid": "1-1"}, None, {}),
        ({"prow.k8s.io/id": "1-1", "app.kubernetes.io/name": "run-1"}, None, {}),
        ({"ci.example/status": "x"}, {"ci.example/status": "y"}, {}),
        ({"deployment": "db"}, None, {"matchLabels": {"deployment": "db"}}),
    ],
)
def test_policy_selects_the_key_of_an_application_if_no_value_stays(
    labels: Json, others: Json | None, selector: Json
) -> None:
    pods = [{"labels": each} for each in (labels, others) if each is not None]
    assert found_pods("init-255", *pods).pod_selector == selector


TASK_RUN = {"tekton.dev/taskRun": "build-1", "app.kubernetes.io/managed-by": "tekton-pipelines"}
OF_PIPELINE = {**TASK_RUN, "tekton.dev/pipelineRun": "build"}


def test_policy_with_a_class_selects_the_affinity_assistants_of_pipelines_too() -> None:
    cases: list[tuple[str, list[Json], Json]] = [
        ("umount", [TASK_RUN], exists("tekton.dev/taskRun")),
        ("umount", [OF_PIPELINE], exists("tekton.dev/pipelineRun")),
        ("umount", [OF_PIPELINE, TASK_RUN], exists("tekton.dev/pipelineRun")),
        ("relabel", [OF_PIPELINE], exists("tekton.dev/pipelineRun")),
        ("init-255", [OF_PIPELINE, TASK_RUN], exists("tekton.dev/taskRun")),
        ("umount", [OF_PIPELINE, {"app": "web"}], {}),
    ]
    for name, labels, selector in cases:
        pods = ({"labels": each} for each in labels)
        assert (name, labels, found_pods(name, *pods).pod_selector) == (name, labels, selector)


@pytest.mark.parametrize(
    "labels",
    [
        {"leaderworkerset.sigs.k8s.io/group-key": "f" * 40},
        {"app": "hello-00001", "serving.knative.dev/revision": "hello-00001"},
    ],
)
def test_policy_for_a_deployment_selects_no_label_of_a_revision_or_a_group(labels: Json) -> None:
    workload = WorkloadName("ReplicaSet", "web", "ci", "apps")
    metadata = {"labels": {**labels, "z": "1-0"}}
    pod = decode_pod(msgspec.json.encode({"metadata": metadata, "spec": {}}))
    assert {x for x in selectable(pod, workload) if x[1]} == {("z", "1-0")}


def test_policy_that_selects_no_next_pod_of_a_template_is_not_claimed_to_change_it() -> None:
    owner = planted_symptoms.owned_by("ReplicaSet", "web", app="ci", added="x")
    found = found_pods("fs-group", owner)
    (kind,) = found.kinds.values()
    assert found.pod_selector == {"matchLabels": {"app": "ci"}}
    for labels, selector in (
        ({"added": "x"}, {"matchLabels": {"added": "x"}}),
        ({"app": "other"}, {}),
    ):
        template = replace(plant_named("fs-group"), metadata={"labels": labels}).pod("ci")
        kind.encoded, kind.has_template = msgspec.json.encode(template), True
        assert found.pod_selector == selector


def test_pods_beyond_the_limit_of_memory_are_counted_and_not_previewed() -> None:
    owners = (planted_symptoms.owned_by("ReplicaSet", f"web-{number}") for number in range(40))
    found = found_pods("fs-group", *owners, max_bytes=4_000)
    assert 0 < len(found.kinds) < 20
    proposal = propose(found, CLUSTER)
    assert proposal is not None
    _, preview = proposal
    assert (preview.pods, preview.changes) == (40, len(found.kinds))
    (left,) = preview.unchanged
    assert (left.pods, left.text.partition(",")[0]) == (40 - len(found.kinds), "not previewed")


def test_pod_whose_template_is_settled_is_in_no_proposal() -> None:
    found = found_pods("fs-group", planted_symptoms.owned_by("ReplicaSet", "web", app="ci"))
    (kind,) = found.kinds.values()
    template = plant_named("fs-group").pod("ci")
    template["spec"]["securityContext"]["fsGroupChangePolicy"] = "OnRootMismatch"
    kind.encoded, kind.has_template = msgspec.json.encode(template), True
    proposal = propose(found, CLUSTER)
    assert proposal is not None
    policy, preview = proposal
    assert (policy, preview.changes, preview.in_force) == ("", 0, ())
    (left,) = preview.unchanged
    assert (left.pods, left.text.partition(":")[0]) == (1, "AlreadySettled")


def test_time_of_an_event_before_its_pod_is_left_out() -> None:
    plant = plant_named("handler")
    event = PlantedEvent(*plant.events[0])
    for offset, is_known in ((-3_600, False), (0, True)):
        changed = replace(plant, events=(event._replace(first=offset, last=offset),))
        (found,) = judge(changed)
        assert (found.first_seen is not None) is is_known


@pytest.mark.parametrize("field", ["hostPID", "hostIPC"])
@pytest.mark.parametrize(
    ("runtime", "is_found"), [("cri-o://1.32.13", False), ("cri-o://1.33.0", True)]
)
def test_pod_in_a_namespace_of_its_node_is_relabelled_from_cri_o_1_33_on(
    field: str, runtime: str, is_found: bool
) -> None:
    for plant in map(plant_named, ("relabel", "create-error")):
        facts = facts_for(plant)
        read = read_node(planted_symptoms.node(planted_symptoms.CRIO, runtime, None))
        facts = replace(facts, nodes={read.name: read})
        for value in (True, False):
            changed = replace(plant, spec={**plant.spec, field: value})
            assert bool(judge(changed, facts)) is (is_found or not value)
