"""The facts about a pod, and their encoding as a cache key."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, reject

from tests.support.factories import Json, container, pod
from tests.support.reviews import make_request
from tests.support.strategies import PODS
from webhook.core.admission.review import decode_review, encode_creation
from webhook.core.decision_input import (
    ContainerFacts,
    DecisionInput,
    EntrypointImage,
    NamespaceFacts,
    PodFacts,
    facts_of,
    namespace_facts_of,
)
from webhook.core.pod import DECODE_ERRORS, Pod

encode = msgspec.json.encode
decode = msgspec.json.Decoder(DecisionInput).decode


def facts(document: Any) -> PodFacts:
    return facts_of(make_request(document, "ci").pod)


def container_facts(**fields: Any) -> ContainerFacts:
    (found,) = facts(pod(containers=[{"name": "a", **fields}])).containers or ()
    return found


@given(PODS)
def test_the_cache_key_determines_every_fact(document: Any) -> None:
    try:
        found = DecisionInput(facts(document), NamespaceFacts(fixed_selinux_level=True))
    except DECODE_ERRORS:
        reject()
    assert decode(encode(found)) == found


RAW = pod(container("a", "x", resources={"limits": {"cpu": 1}}), tolerations=[{"key": "k"}])


def test_the_cache_key_contains_undecoded_fields() -> None:
    found = DecisionInput(facts(RAW), NamespaceFacts())
    assert decode(encode(found)) == found
    assert b'"limits":{"cpu":1}' in encode(found).replace(b" ", b"")


@pytest.mark.parametrize(
    ("struct", "name"),
    [
        (struct, field.name)
        for struct in (PodFacts, ContainerFacts, EntrypointImage, NamespaceFacts)
        for field in msgspec.structs.fields(struct)
    ],
)
def test_a_change_of_any_fact_changes_the_cache_key(struct: type[Any], name: str) -> None:
    some = struct()
    assert encode(some) != encode(msgspec.structs.replace(some, **{name: "changed"}))


@given(PODS)
def test_facts_are_read_without_changing_the_pod(document: Any) -> None:
    try:
        received: Pod = make_request(document, "ci").pod
        before = encode(received)
        facts_of(received)
    except DECODE_ERRORS:
        reject()
    assert encode(received) == before


def test_absent_lists_differ_from_empty_lists() -> None:
    absent = facts(pod(initContainers=None, volumes=None, annotations=None))
    empty = facts(pod(initContainers=[], volumes=[]))
    assert (absent.init_containers, absent.volume_count) == (None, None)
    assert (empty.init_containers, empty.volume_count) == ((), 0)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (None, (False, 0, None, ())),
        ({}, (True, 0, None, ())),
        ({"annotations": {}, "labels": None}, (True, 0, {}, ())),
        (
            {
                "annotations": {"theirs": "1", "podsettle.dev/skip": "x"},
                "labels": {"a": "1", "b": "2"},
                "ownerReferences": [{"kind": "Job", "name": "n"}, {"kind": "DaemonSet"}],
            },
            (True, 2, {"podsettle.dev/skip": "x"}, ("Job", "DaemonSet")),
        ),
    ],
)
def test_of_the_metadata_only_what_decisions_read_is_a_fact(
    metadata: Json | None, expected: tuple[Any, ...]
) -> None:
    document = pod()
    document["metadata"] = metadata
    found = facts(document)
    assert (found.has_metadata, found.label_count, found.annotations, found.owner_kinds) == expected


@pytest.mark.parametrize(
    ("volumes", "name", "persistent"),
    [
        ([{"name": "a", "emptyDir": {}}], None, False),
        ([{"name": "a", "persistentVolumeClaim": {}}], None, True),
        ([{"name": "a", "persistentVolumeClaim": {"readOnly": False}}], None, True),
        ([{"name": "a", "persistentVolumeClaim": {"readOnly": True}}], None, False),
        ([{"name": "a", "ephemeral": {}}, {"name": "b"}], None, True),
        ([{"name": "a"}, {"name": "podsettle-linger", "image": {}}], "podsettle-linger", False),
    ],
)
def test_of_the_volumes_only_what_decisions_read_is_a_fact(
    volumes: list[Json], name: str | None, persistent: bool
) -> None:
    found = facts(pod(volumes=volumes))
    assert found.volume_count == len(volumes)
    assert (found.helper_volume and found.helper_volume.name) == name
    assert found.has_persistent_volume is persistent


@pytest.mark.parametrize("containers", ["initContainers", "containers"])
@pytest.mark.parametrize(
    ("fields", "persistent"),
    [
        ({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}, True),
        ({"volumeDevices": [{"name": "data", "devicePath": "/dev/data"}]}, False),
        ({"volumeMounts": [{"name": "tmp", "mountPath": "/data"}]}, False),
        ({"volumeMounts": None}, False),
    ],
)
def test_claim_counts_only_if_a_container_mounts_it(
    fields: Json, persistent: bool, containers: str
) -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    unmounting = container("m", "x", volumeMounts=[])
    inits = [unmounting] if containers == "initContainers" else []
    document = pod(*inits, volumes=[claim], containers=[unmounting])
    document["spec"][containers].append(container("uses", "x", **fields))
    assert facts(document).has_persistent_volume is persistent


@pytest.mark.parametrize("volumes", [None, [{"name": "data", "emptyDir": {}}]])
def test_mounts_of_a_pod_without_a_claim_are_not_decoded(volumes: Any) -> None:
    document = pod(containers=[container("m", "x", volumeMounts=[5])], volumes=volumes)
    assert not facts(document).has_persistent_volume


def test_the_image_of_a_container_is_a_fact_if_the_container_has_no_command() -> None:
    assert container_facts(image="i", command=["x"]).entrypoint_image is None
    assert container_facts(image="i").entrypoint_image == EntrypointImage("i", has_args=False)
    assert container_facts(image="i", args=["a"]).entrypoint_image == EntrypointImage(
        "i", has_args=True
    )
    assert container_facts(command=[], args=[]).entrypoint_image == EntrypointImage()


@pytest.mark.parametrize("fields", [{"restartPolicy": "Always"}, {"name": "sidecar-db"}])
def test_of_the_command_of_a_sidecar_only_the_helper_is_a_fact(fields: Json) -> None:
    mounts = [{"name": "v", "mountPath": "/podsettle"}]
    starts_helper = {"name": "a", "command": ["/podsettle/linger"], "volumeMounts": mounts}
    received = pod(
        {**starts_helper, **fields}, {"name": "b", "image": "i", "args": ["a"], **fields}
    )
    wrapped, plain = facts(received).init_containers or ()
    assert (wrapped.command, wrapped.starts_helper, wrapped.has_mounts) == (None, True, False)
    assert (plain.starts_helper, plain.entrypoint_image) == (False, None)


def test_the_command_of_podsettles_own_sidecar_is_a_fact() -> None:
    found = container_facts(name="podsettle-linger", command=["/linger"], restartPolicy="Always")
    assert found.command == ["/linger"]


@pytest.mark.parametrize(
    ("fields", "has_mounts", "over_helper"),
    [
        ({}, False, False),
        ({"volumeMounts": None}, False, False),
        ({"volumeMounts": []}, True, False),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, True, False),
        ({"volumeMounts": [{"name": "podsettle", "mountPath": "/v"}]}, True, False),
        ({"volumeMounts": [{"name": "v", "mountPath": "podsettle/"}]}, True, True),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v/../podsettle/x"}]}, True, True),
        ({"volumeMounts": [{"name": "v", "mountPath": "/podsettles"}]}, True, False),
        ({"volumeDevices": [{"name": "d", "devicePath": "/podsettle"}]}, False, True),
        ({"volumeDevices": [{"name": "d", "devicePath": "/dev/x"}]}, False, False),
    ],
)
def test_mounts_are_facts_only_by_their_presence_and_the_helpers_path(
    fields: Json, has_mounts: bool, over_helper: bool
) -> None:
    found = container_facts(command=["x"], **fields)
    assert (found.has_mounts, found.mounts_over_helper) == (has_mounts, over_helper)


def test_mount_over_the_helper_is_found_behind_an_escape() -> None:
    mounting = pod(container("a", "x", volumeMounts=[{"name": "v", "mountPath": "/podsettle"}]))
    body = encode_creation(mounting, "ci").replace(b"/podsettle", b"/podsettl\\u0065")
    (found,) = facts_of(decode_review(body).request.pod).init_containers or ()
    assert found.mounts_over_helper


@pytest.mark.parametrize("mounts", [{"no": "list"}, 5, "text"])
def test_mounts_that_are_no_list_are_refused(mounts: Any) -> None:
    with pytest.raises(DECODE_ERRORS):
        container_facts(command=["x"], volumeMounts=mounts)


@pytest.mark.parametrize(
    ("name", "is_system"), [("ci", False), ("kube-system", True), ("openshift-ci", True)]
)
def test_of_the_name_of_a_namespace_only_the_prefix_is_a_fact(name: str, is_system: bool) -> None:
    found = namespace_facts_of(name, {}, fixed_selinux_level=False)
    assert found == NamespaceFacts(fixed_selinux_level=False, is_system=is_system)


@pytest.mark.parametrize("key", ["podsettle.dev/summary", "podsettle.dev/skipped"])
def test_text_for_people_is_not_part_of_the_facts_but_its_presence_is(key: str) -> None:
    with_text = facts(pod(annotations={key: "x" * 1_000, "theirs": "y"}))
    assert with_text.annotations == {key: ""}
    assert with_text == facts(pod(annotations={key: ""}))
    assert with_text != facts(pod(annotations={}))


def test_list_of_skipped_remedies_is_a_fact_while_it_is_as_short_as_podsettle_writes_it() -> None:
    key = "podsettle.dev/skipped"
    longest = "x" * (768 - len(key))
    assert facts(pod(annotations={key: longest})).annotations == {key: longest}
    assert facts(pod(annotations={key: longest + "x"})).annotations == {key: ""}
