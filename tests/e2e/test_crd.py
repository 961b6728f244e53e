"""A real API server takes the CRD, and judges SettlePolicies as `parse_policy` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.data.invalid_policies import (
    EXAMPLE_POLICIES,
    RIGHT,
    WRONG,
    gate,
    labels,
    requirement,
    sleep,
)
from tests.support.factories import Json, policy_document
from tests.support.kube.cluster import Answer, KubeCluster
from tests.support.paths import CRD
from tests.support.waiting import await_that
from webhook.core.policy.crd import CRD_NAME
from webhook.core.policy.errors import InvalidPolicyError
from webhook.core.policy.model import Remedies, SettlePolicy, parse_policy

DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD_NAME}"
POLICIES = "/apis/podsettle.dev/v1alpha1/settlepolicies"


@pytest.fixture(scope="module")
def served(cluster: KubeCluster) -> Iterator[KubeCluster]:
    """The cluster with the chart's CRD, and in the end without a policy."""
    applied = cluster.kubectl("apply", "--server-side", "-f", CRD)
    assert (applied.returncode, applied.stderr) == (0, "")
    await_that(lambda: cluster.request("GET", POLICIES).status == 200, "policies are served")
    yield cluster
    cluster.request("DELETE", POLICIES)


def judged(cluster: KubeCluster, document: Json) -> Answer:
    """What the API server says of a policy, as strictly as it says it to kubectl."""
    return cluster.request("POST", f"{POLICIES}?dryRun=All&fieldValidation=Strict", document)


def parsed(document: Json) -> SettlePolicy | None:
    try:
        return parse_policy(document)
    except InvalidPolicyError:
        return None


def test_api_server_stores_the_crd_unchanged(served: KubeCluster) -> None:
    conditions = served.request("GET", DEFINITION).body["status"]["conditions"]
    statuses = {condition["type"]: condition["status"] for condition in conditions}
    assert statuses["Established"] == statuses["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in statuses
    body = yaml.safe_load(CRD.read_text(encoding="utf-8"))
    body["metadata"]["resourceVersion"] = served.request("GET", DEFINITION).body["metadata"][
        "resourceVersion"
    ]
    status, replaced, warnings = served.request("PUT", f"{DEFINITION}?dryRun=All", body)
    assert (status, warnings) == (200, []), replaced


REMEDY_NAMES = [str(field.alias) for field in Remedies.model_fields.values()]


@pytest.mark.parametrize("path", ["", *REMEDY_NAMES])
def test_kubectl_explains_every_remedy(path: str, served: KubeCluster) -> None:
    def explained() -> str:
        at = f"settlepolicy.spec.remedies.{path}".rstrip(".")
        return " ".join(served.kubectl("explain", at).stdout.split())

    # The API server publishes what it learned of a CRD a while later.
    await_that(lambda: "DESCRIPTION:" in explained(), "kubectl can explain policies")
    schema = yaml.safe_load(CRD.read_text(encoding="utf-8"))["spec"]["versions"][0]["schema"]
    node = schema["openAPIV3Schema"]
    for key in ("spec", "remedies", *filter(None, [path])):
        node = node["properties"][key]
    text = explained()
    assert node["description"] in text
    for key, inner in node.get("properties", {}).items():
        assert key in text
        assert inner["description"] in text


@pytest.mark.parametrize("name", RIGHT)
def test_valid_policy_is_accepted_and_reads_back_as_the_model_reads_it(
    name: str, served: KubeCluster
) -> None:
    status, body, warnings = judged(served, RIGHT[name])
    assert (status, warnings) == (201, []), body
    assert parse_policy(body).spec == parse_policy(RIGHT[name]).spec


@pytest.mark.parametrize("name", WRONG)
def test_invalid_policy_is_refused_with_the_path_of_the_value(
    name: str, served: KubeCluster
) -> None:
    wrong = WRONG[name]
    assert parsed(wrong.document) is None
    status, body, _ = judged(served, wrong.document)
    assert status in (400, 422), body
    assert (wrong.says or wrong.path) in body["message"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (sleep(sleep="61s"), "is longer than 1m, the longest a pod may be held up"),
        (sleep(sleep="0", minLifetime="0"), "minLifetime and sleep are both 0"),
        (sleep(initContainers=[]), "initContainers and containers are both empty"),
        (sleep(initContainers=[], containers=[]), "initContainers and containers are both empty"),
        (gate(timeout="0s"), "timeout is 0: leave the remedy out instead"),
        (gate(timeout="61s"), "is longer than 1m, the longest a pod may be held up"),
        (policy_document(remedies={}), "no remedy is set: name at least one"),
        (requirement("In"), "operator In needs values"),
        (requirement("DoesNotExist", values=["a"]), "operator DoesNotExist takes no values"),
        (labels({"ok": "", "a b": ""}), "a b is not a label key"),
        (labels({"ok": "", "a": None}), "a is empty, should be a string"),
        (WRONG["two classes"].document, "this is b, but runtimeClass.name is a"),
    ],
)
def test_validation_rule_has_the_message_of_podsettle(
    document: Json, said: str, served: KubeCluster
) -> None:
    message = judged(served, document).body["message"]
    assert said in message
    assert message.count("Invalid value") == 1


# Where the API server and `parse_policy` differ, and why that is how it is.

_DROPPED = "The API server drops a null before it looks: it is as good as left out."
LENIENT = {
    "no priority": policy_document(priority=None),
    "no action": policy_document(action=None),
    "no description": policy_document(description=None),
    "no pod selector": policy_document(podSelector=None),
    "no labels": policy_document(podSelector={"matchLabels": None}),
    "no entries": policy_document(podSelector={"matchExpressions": None}),
    "no values": requirement("Exists", values=None),
    "no duration": sleep(sleep=None),
    "no globs": sleep(initContainers=None),
    # JSON has one kind of number.
    "whole fraction": policy_document(priority=1.0),
    # The API server makes a name; a file has to have one.
    "a name to be made": {**policy_document(), "metadata": {"generateName": "p-"}},
    # A new object has no status, whatever it says.
    "number as status": {**policy_document(), "status": 5},
}
STRICT = {
    # What every object has is for the API server to judge, and for it alone.
    "unknown metadata": {**policy_document(), "metadata": {"name": "p", "extra": 1}},
    "labels of the policy": {**policy_document(), "metadata": {"name": "p", "labels": {"a b": ""}}},
    "unknown status": {**policy_document(), "status": {"extra": 1}},
    # The rules on keys may not cost more than an API server allows.
    "too many labels": labels({f"a{number}": "" for number in range(1001)}),
}


@pytest.mark.parametrize("name", LENIENT)
def test_value_that_only_the_api_server_accepts_has_no_effect(
    name: str, served: KubeCluster
) -> None:
    assert parsed(LENIENT[name]) is None
    status, body, _ = judged(served, LENIENT[name])
    assert status == 201, body
    assert parsed(body) is not None


@pytest.mark.parametrize("name", STRICT)
def test_value_that_only_the_api_server_refuses(name: str, served: KubeCluster) -> None:
    assert parsed(STRICT[name]) is not None
    assert judged(served, STRICT[name]).status in (400, 422)


# Documents that nobody thought of: neither null, nor a fraction that is whole, see above.

JUNK = st.sampled_from([5, 1.5, True, "", "x", [], {}, [5], ["x"], {"a": "b"}, {"a": 5}])


def mostly(good: st.SearchStrategy[Any], odd: st.SearchStrategy[Any] = JUNK) -> Any:
    """Now and then something odd: with one oddity in most documents, all of them are seen."""
    return st.integers(0, 24).flatmap(lambda n: (odd | JUNK) if n == 11 else good)


@st.composite
def objects(
    draw: st.DrawFn, /, required: dict[str, Any] | None = None, **optional: st.SearchStrategy[Any]
) -> Json:
    known: Json = draw(st.fixed_dictionaries(required or {}, optional=optional))
    return {**known, "extra": 1} if draw(st.integers(0, 24)) == 11 else known


def joined(amounts: st.SearchStrategy[str], units: list[str]) -> st.SearchStrategy[str]:
    parts = st.builds(str.__add__, amounts, st.sampled_from(units))
    return st.lists(parts, min_size=1, max_size=3).map("".join)


DURATIONS = mostly(
    joined(st.integers(0, 20).map(str) | st.sampled_from(["0.5", "00", "19.9999"]), ["ms", "s"]),
    joined(st.sampled_from(["1", "0.9", "59.999", "60", "60.0001", "60000"]), ["ms", "s", "m", "h"])
    | joined(st.text("0123.-+", max_size=3), ["ms", "s", "us", ""]),
)
GLOBS = mostly(
    st.lists(st.text("ab-*?", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("aB.*[]", max_size=3), max_size=3),
)
CONTAINERS = mostly(
    st.sampled_from(["prepare", "a", "a-0", "0" * 63]),
    st.sampled_from(["*", "a" * 64]) | st.text("a-.B", max_size=4),
)
VALUES = mostly(
    st.sampled_from(["", "a", "b-c", "A_1.b", "a" * 63]),
    st.sampled_from(["a" * 64]) | st.text("aB1-_./", max_size=4),
)
KEYS = mostly(
    st.sampled_from(["a", "tekton.dev/taskRun", "a" * 63, f"{'a' * 253}/b"]),
    st.sampled_from(["a" * 64, f"{'a' * 254}/b"]) | st.text("aB1-_./", max_size=5),
)
TEXT_KEYS = KEYS.map(lambda key: key if isinstance(key, str) else "a b")
CLASSES = mostly(
    st.sampled_from(["a", "a", "a", "b", "a" * 253]),
    st.sampled_from(["a" * 254]) | st.text("a-.B", max_size=4),
)
ENTRIES = mostly(
    objects(
        {"key": KEYS, "operator": st.sampled_from(["In", "NotIn"])}
        | {"values": mostly(st.lists(VALUES, min_size=1, max_size=2))}
    )
    | objects({"key": KEYS, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
    objects(
        key=KEYS,
        operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"]),
        values=st.lists(VALUES, max_size=1),
    ),
)
SELECTORS = mostly(
    objects(
        matchLabels=mostly(st.dictionaries(TEXT_KEYS, VALUES, max_size=2)),
        matchExpressions=mostly(st.lists(ENTRIES, max_size=2)),
    )
)
WHEN = mostly(st.sampled_from(["NodesNeedIt", "Always"]))
REMEDIES = {
    "postInitSleep": mostly(
        objects(
            when=WHEN,
            minLifetime=DURATIONS,
            sleep=DURATIONS,
            initContainers=GLOBS,
            containers=GLOBS,
            delivery=mostly(st.sampled_from(["Auto", "Shell", "Binary", "ImageVolume"])),
        )
    ),
    "skipSELinuxRelabel": mostly(
        objects(
            when=WHEN,
            pods=mostly(st.sampled_from(["WithPersistentVolumes", "All"])),
            runtimeClassName=CLASSES,
        )
    ),
    "runtimeClass": mostly(objects({"name": CLASSES}, when=WHEN)),
    "seLinuxChangePolicy": mostly(st.just("Recursive"), st.just("MountOption")),
    "retryInitExit255": mostly(
        objects(
            {"initContainers": mostly(st.lists(CONTAINERS, min_size=1, max_size=2))},
            when=WHEN,
        )
    ),
    "kubeletGate": mostly(objects(timeout=DURATIONS)),
}
SPECS = objects(
    {"remedies": mostly(objects(**REMEDIES))},
    description=mostly(st.text("aé -", max_size=9)),
    priority=mostly(st.integers(-(2**31), 2**31 - 1), st.sampled_from([-(2**31) - 1, 2**31])),
    action=mostly(st.sampled_from(["Mutate", "Audit"])),
    namespaceSelector=SELECTORS,
    podSelector=SELECTORS,
)
DOCUMENTS = st.fixed_dictionaries(
    {
        "apiVersion": st.just("podsettle.dev/v1alpha1"),
        "kind": st.just("SettlePolicy"),
        "metadata": st.builds(dict, name=st.sampled_from(["p", "p", "p", "a-.b", "a.b", "B"])),
        "spec": mostly(SPECS),
    }
)


def test_valid_and_invalid_documents_cover_every_remedy() -> None:
    assert REMEDIES.keys() == set(REMEDY_NAMES)


def test_api_server_and_model_accept_the_same_generated_documents(served: KubeCluster) -> None:
    seen: Counter[bool] = Counter()

    @given(DOCUMENTS)
    def think_alike(document: Json) -> None:
        policy = parsed(document)
        status, body, _ = judged(served, document)
        assert (status == 201) is (policy is not None), body
        if policy is not None:
            assert parse_policy(body).spec == policy.spec
        seen[policy is not None] += 1

    think_alike()
    assert min(seen[True], seen[False]) > 20, seen


# What people do with kubectl.


@pytest.fixture
def applied(served: KubeCluster) -> Iterator[KubeCluster]:
    text = yaml.safe_dump_all(EXAMPLE_POLICIES.values(), sort_keys=False)
    done = served.kubectl("apply", "-f", "-", input=text)
    assert (done.returncode, done.stderr) == (0, "")
    yield served
    served.kubectl("delete", "-f", "-", input=text)


def test_every_example_reads_back_as_it_was_written(applied: KubeCluster) -> None:
    for name, document in EXAMPLE_POLICIES.items():
        body = applied.request("GET", f"{POLICIES}/{name}").body
        assert parse_policy(body).spec == parse_policy(document).spec


def condition(kind: str, status: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": "AllGood",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }


def test_kubectl_get_shows_the_printer_columns(applied: KubeCluster) -> None:
    status: Json = {
        "conditions": [
            condition("Accepted", "True"),
            condition("RuntimeClassesFound", "False"),
            condition("StillNeeded", "Unknown"),
        ],
        "observedGeneration": 1,
        "matchedNamespaces": 12,
    }
    path = f"{POLICIES}/tekton-on-crio/status"
    code, body, _ = applied.request("PATCH", path, {"status": status})
    assert code == 200, body
    shown = applied.kubectl("get", "settle", "tekton-on-crio").stdout.splitlines()
    assert shown[0].split() == [
        "NAME",
        "PRIORITY",
        "ACTION",
        "ACCEPTED",
        "CLASSES",
        "FOUND",
        "STILL",
        "NEEDED",
        "NAMESPACES",
        "AGE",
    ]
    assert shown[1].split()[:-1] == [
        *("tekton-on-crio", "100", "Mutate"),
        *("True", "False", "Unknown", "12"),
    ]
    wide = applied.kubectl("get", "settle", "tekton-on-crio", "-o", "wide").stdout
    assert wide.splitlines()[0].split()[-1] == "DESCRIPTION"
    assert EXAMPLE_POLICIES["tekton-on-crio"]["spec"]["description"] in wide


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"conditions": [condition("Accepted", "Maybe")]}, "status.conditions[0].status"),
        ({"conditions": [{"type": "Accepted"}]}, "status.conditions[0].reason"),
        ({"conditions": [condition("Accepted", "True")] * 2}, "Duplicate value"),
        ({"matchedNamespaces": -1}, "status.matchedNamespaces"),
    ],
)
def test_invalid_status_is_refused(change: Json, said: str, applied: KubeCluster) -> None:
    path = f"{POLICIES}/quick-jobs/status"
    code, body, _ = applied.request("PATCH", path, {"status": change})
    assert code == 422
    assert said in body["message"]


def test_writing_a_policy_does_not_change_its_status(applied: KubeCluster) -> None:
    path = f"{POLICIES}/quick-jobs"
    code, body, _ = applied.request("PATCH", path, {"status": {"matchedNamespaces": 5}})
    assert code == 200
    assert "status" not in body


def test_new_default_does_not_change_stored_objects(tmp_path: Path) -> None:
    """What docs/kubelet-gate.md says of policies made while the default was 15 s."""
    text = CRD.read_text(encoding="utf-8")
    assert text.count("default: 30s") == 1  # kubeletGate.timeout
    earlier, policy = tmp_path / "crd.yaml", tmp_path / "policy.yaml"
    earlier.write_text(text.replace("default: 30s", "default: 15s"), encoding="utf-8")
    document = policy_document(remedies={"kubeletGate": {}})
    policy.write_text(yaml.safe_dump(document), encoding="utf-8")
    name = document["metadata"]["name"]
    columns = "NAME:.metadata.name,GATE:.spec.remedies.kubeletGate.timeout"

    with KubeCluster.start() as own:

        def gate_of_a_new_policy() -> str | None:
            fresh = document | {"metadata": {"name": "fresh"}}
            status, body, _ = own.request("POST", f"{POLICIES}?dryRun=All", fresh)
            timeout: str = body["spec"]["remedies"]["kubeletGate"]["timeout"]
            return timeout if status == 201 else None

        def gates() -> list[str]:
            return own.kubectl(
                "get", "settlepolicies", "-o", f"custom-columns={columns}"
            ).stdout.split()

        def is_served() -> bool:
            return own.request("GET", POLICIES).status == 200

        assert own.kubectl("apply", "--server-side", "-f", earlier).returncode == 0
        await_that(is_served, "policies are served")
        assert own.kubectl("apply", "-f", policy).returncode == 0
        assert gates() == ["NAME", "GATE", name, "15s"]
        renew = ("apply", "--server-side", "--force-conflicts", "-f", CRD.parent)
        assert own.kubectl(*renew).returncode == 0
        await_that(lambda: gate_of_a_new_policy() == "30s", "the new default is in force")
        assert own.kubectl("apply", "-f", policy).returncode == 0
        assert gates() == ["NAME", "GATE", name, "15s"]
        patch = '{"spec":{"remedies":{"kubeletGate":{"timeout":"30s"}}}}'
        patched = own.kubectl("patch", "settlepolicy", name, "--type=merge", "-p", patch)
        assert patched.returncode == 0, patched.stderr
        assert gates() == ["NAME", "GATE", name, "30s"]
