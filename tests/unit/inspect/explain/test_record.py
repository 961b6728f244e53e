"""Tests of what a pod alone tells of podsettle."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.factories import (
    MODERN,
    Json,
    container,
    mutate_pod,
    node,
    pod,
    policy,
    view,
)
from tests.support.paths import DATA, EXAMPLES
from tests.support.reviews import PODS, load_pod
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.pod import decode_pod
from webhook.core.remedies import REMEDIES
from webhook.inspect.explain.record import Record


def test_admitted_pod_shows_a_sign_of_each_remedy() -> None:
    source = ManifestsSource(EXAMPLES)
    source.refresh()
    applied: set[str] = set()
    for path in [*PODS, *(EXAMPLES / "pods").glob("*.yaml"), *(DATA / "reasons").glob("*.yaml")]:
        document = load_pod(path)
        settled = mutate_pod(document, source.view, namespace=document["metadata"]["namespace"])
        record = Record(decode_pod(msgspec.json.encode(settled)))
        assert not record.unshown, path
        applied |= record.remedies.keys()
    assert applied == REMEDIES.keys(), "examples/policies.yaml has to apply each of them"


TRACEABLE = [name for name, remedy in REMEDIES.items() if remedy.is_traceable]


@given(st.data())
def test_pod_settled_by_any_policies_shows_each_remedy_also_without_its_annotations(
    data: st.DataObject,
) -> None:
    names = data.draw(st.sets(st.sampled_from(TRACEABLE), min_size=1))
    delivery = st.sampled_from(["Auto", "Shell", "Binary", "ImageVolume"])
    settings: Json = {
        "postInitSleep": {"containers": ["*"], "delivery": data.draw(delivery)},
        "openFiles": {"soft": 1024, "initContainers": ["*"], "delivery": data.draw(delivery)},
        "startGate": {"waitFor": [{"dns": "a.b"}]},
        "kubeletGate": {},
    }
    policies = [policy(name.lower(), remedies={name: settings[name]}) for name in names]
    seen = view(*policies, nodes=[data.draw(st.sampled_from([MODERN, node()]))])
    document = pod(
        container("prepare", data.draw(st.sampled_from(["sh", "/prepare"])), "-c", "x"),
        containers=[container("main", data.draw(st.sampled_from(["bash", "/main"])), "-c", "x")],
        restartPolicy="Never",
    )
    settled = mutate_pod(document, seen)
    record = Record(decode_pod(msgspec.json.encode(settled)))
    assert record.doubt == ""
    event(",".join(sorted(record.remedies)))
    settled["metadata"].pop("annotations", None)
    copied = Record(decode_pod(msgspec.json.encode(settled)))
    assert ("(it may be a copy)" in copied.doubt) == bool(record.remedies)
    containers = [each for _, each in copied.containers]
    signs = {name for name in TRACEABLE if any(map(REMEDIES[name].container_sign, containers))}
    assert signs == record.remedies.keys()


@pytest.mark.parametrize("remedy", REMEDIES)
def test_plain_pod_shows_no_sign_of_any_remedy(remedy: str) -> None:
    plain = pod(container("a"), annotations={"podsettle.dev/applied": f"p/{remedy}"})
    assert Record(decode_pod(msgspec.json.encode(plain))).unshown == [remedy]
