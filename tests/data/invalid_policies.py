"""SettlePolicy documents, right and wrong, on which every reader of them has to agree."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import yaml

from tests.support.factories import Json, is_policy, policy_document
from tests.support.paths import EXAMPLES
from webhook.core.policy.model import PolicyMetadata

EXAMPLE_POLICIES: dict[str, Json] = {
    document["metadata"]["name"]: document
    for path in sorted(EXAMPLES.rglob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    if is_policy(document)
}

LONGEST_NAME: int = PolicyMetadata.model_json_schema()["properties"]["name"]["maxLength"]


class Wrong(NamedTuple):
    """A document that nobody may accept."""

    document: Json
    path: str
    """Of the value that is to blame."""
    says: str = ""
    """What the API server names in its place, where it does not get to the schema."""
    only_rule: bool = False
    """Whether it takes a CEL rule to tell, which editors do not know."""


def only(remedy: str, **settings: Any) -> Json:
    return policy_document(remedies={remedy: settings})


sleep, gate, limits = (
    partial(only, name) for name in ("postInitSleep", "kubeletGate", "openFiles")
)


def retry(*names: Any, **settings: Any) -> Json:
    return only("retryInitExit255", initContainers=list(names), **settings)


def start_gate(*targets: Json, **settings: Any) -> Json:
    return only("startGate", waitFor=[*targets], **settings)


def change_policy(value: Any) -> Json:
    return policy_document(remedies={"seLinuxChangePolicy": value})


def labels(matched: Any) -> Json:
    return policy_document(podSelector={"matchLabels": matched})


def requirement(operator: str, **further: Any) -> Json:
    entry = {"key": "a", "operator": operator, **further}
    return policy_document(podSelector={"matchExpressions": [entry]})


def without(key: str) -> Json:
    return {name: value for name, value in policy_document().items() if name != key}


def images(**settings: Any) -> Json:
    return policy_document(imageConfig=settings)


REMEDIES = "spec.remedies"
IMAGES = "spec.imageConfig"
SLEEP = f"{REMEDIES}.postInitSleep"
RETRY = f"{REMEDIES}.retryInitExit255"
START_GATE = f"{REMEDIES}.startGate"
MATCHED = "spec.podSelector.matchLabels"
ENTRY = "spec.podSelector.matchExpressions[0]"

RIGHT: dict[str, Json] = {
    "every default": policy_document(),
    "no selector": policy_document(namespaceSelector=None),
    "empty selectors": policy_document(podSelector={"matchLabels": {}, "matchExpressions": []}),
    "everything said": policy_document(
        description="é: everything",
        priority=-5,
        action="Audit",
        podSelector={"matchLabels": {"a": "b"}},
        remedies={
            "postInitSleep": {
                "when": "Always",
                "minLifetime": "250ms",
                "sleep": "0",
                "initContainers": ["prepare", "place-*", "s?"],
                "containers": ["*"],
                "delivery": "Shell",
            },
            "skipSELinuxRelabel": {"when": "Always", "pods": "All", "runtimeClassName": "a.b"},
        },
    ),
    "highest priority": policy_document(priority=2**31 - 1),
    "lowest priority": policy_document(priority=-(2**31)),
    "a class that steps aside": policy_document(
        remedies={"runtimeClass": {"name": "a", "when": "NodesNeedIt"}}
    ),
    "a remedy of nothing beside another": policy_document(
        remedies={"runtimeClass": {"name": "a"}, "postInitSleep": None}
    ),
    "one class twice": policy_document(
        remedies={"runtimeClass": {"name": "a"}, "skipSELinuxRelabel": {"runtimeClassName": "a"}}
    ),
    "an impatient gate": gate(timeout="1ms"),
    "a patient gate": gate(timeout="60s"),
    "containers that may run again": retry("prepare", "a", "a-0", "0" * 63),
    "lowest limit": limits(soft=1),
    "limits of everything": limits(
        soft=1_048_576,
        hard=1_048_576,
        containers=[],
        initContainers=["*"],
        nodeLabel=f"{'a' * 63}/b=",
        delivery="ImageVolume",
    ),
    "Recursive": change_policy("Recursive"),
    "no images": images(),
    "images from registries": images(
        lookup="Registry",
        registries=["quay.io", "*.example.com", "*:*", "localhost:5000", "[::1]:5000", "10.0.0.1"],
    ),
    "images from mirrors": images(
        lookup="Registry",
        mirrors={"docker.io": "harbor.example/hub.io/a_b", "a:1": "[fd00::1]:5000/x", "b": "c:2"},
    ),
    "longest registry": images(lookup="Registry", registries=["a" * 253 + ":65535"]),
    "longest mirror": images(lookup="Registry", mirrors={"a" * 253: "a" * 253 + "/" + "a" * 200}),
    "longest name": policy_document("a" * LONGEST_NAME),
    "a status of ours": {**policy_document(), "status": {"conditions": []}},
    "labels and annotations": {
        **policy_document(),
        "metadata": {"name": "p", "labels": {"a": "b"}, "annotations": {"a": "b c"}},
    },
    **{
        f"duration {text}": sleep(sleep=text)
        for text in ("0", "0s", "0.5s", "1m", "60s", "59s999ms", "1s1s", "60000.5ms", "0.0009s")
    },
    "no lifetime": sleep(minLifetime="0"),
    "no globs": sleep(initContainers=[], containers=["*"]),
    "longest glob": sleep(containers=["a" * 63]),
    "In": requirement("In", values=["b", ""]),
    "NotIn": requirement("NotIn", values=["b"]),
    "Exists": requirement("Exists"),
    "Exists with an empty list": requirement("Exists", values=[]),
    "DoesNotExist": requirement("DoesNotExist"),
    "label with prefix": labels({"tekton.dev/task_Run.x": "A-1_b.C"}),
    "longest label": labels({f"{'a' * 253}/{'b' * 63}": "c" * 63}),
    "many labels": labels({f"{'a' * 253}/{number:063}": "" for number in range(1000)}),
}

WRONG: dict[str, Wrong] = {
    # Wrong types.
    "text as priority": Wrong(policy_document(priority="high"), "spec.priority"),
    "fraction as priority": Wrong(policy_document(priority=1.5), "spec.priority"),
    "mapping as description": Wrong(policy_document(description={"a": "b"}), "spec.description"),
    "list as remedies": Wrong(
        {**policy_document(), "spec": {"remedies": ["postInitSleep"]}}, REMEDIES
    ),
    "text as remedy": Wrong(policy_document(remedies={"postInitSleep": "yes"}), SLEEP),
    "truth as label": Wrong(labels({"a": True}), f"{MATCHED}.a"),
    "number as duration": Wrong(sleep(sleep=10), f"{SLEEP}.sleep"),
    "number as glob": Wrong(sleep(initContainers=["*", 5]), f"{SLEEP}.initContainers[1]"),
    "nothing as glob": Wrong(sleep(initContainers=[None]), f"{SLEEP}.initContainers[0]"),
    # What is missing.
    "no spec": Wrong(without("spec"), "spec"),
    "empty spec": Wrong({**policy_document(), "spec": {}}, REMEDIES),
    "a remedy of nothing": Wrong(
        policy_document(remedies={"postInitSleep": None}), REMEDIES, only_rule=True
    ),
    "empty remedies": Wrong(policy_document(remedies={}), REMEDIES),
    "no class": Wrong(policy_document(remedies={"runtimeClass": {}}), f"{REMEDIES}.runtimeClass"),
    "no key": Wrong(
        policy_document(podSelector={"matchExpressions": [{"operator": "Exists"}]}), f"{ENTRY}.key"
    ),
    "no metadata": Wrong(without("metadata"), "metadata"),
    "no kind": Wrong(without("kind"), "kind", "'Kind' is missing"),
    # Unknown keys and words.
    "unknown key": Wrong({**policy_document(), "extra": 1}, "extra"),
    "unknown key of spec": Wrong(policy_document(prio=1), "spec.prio"),
    "unknown remedy": Wrong(policy_document(remedies={"sleep": {}}), f"{REMEDIES}.sleep"),
    "unknown setting": Wrong(sleep(minLifeTime="1s"), f"{SLEEP}.minLifeTime"),
    "unknown key of an entry": Wrong(requirement("Exists", value="b"), f"{ENTRY}.value"),
    "unknown action": Wrong(policy_document(action="Enforce"), "spec.action"),
    "unknown operator": Wrong(requirement("Is", values=["b"]), f"{ENTRY}.operator"),
    "other version": Wrong(
        {**policy_document(), "apiVersion": "podsettle.dev/v1"}, "apiVersion", 'version "v1"'
    ),
    "other kind": Wrong({**policy_document(), "kind": "SettlePod"}, "kind"),
    # Ranges.
    "priority too high": Wrong(policy_document(priority=2**31), "spec.priority"),
    "priority too low": Wrong(policy_document(priority=-(2**31) - 1), "spec.priority"),
    # Durations.
    **{
        f"duration {text!r}": Wrong(sleep(sleep=text), f"{SLEEP}.sleep")
        for text in ("", "1x", "1.5", "10", "-1s", "1 s", ".5s", "10us", "10ms\n", "0" * 32 + "s")
    },
    **{
        f"duration {text!r}": Wrong(sleep(minLifetime=text), f"{SLEEP}.minLifetime", only_rule=True)
        for text in ("61s", "1m1ms", "60001ms", "1h", "60.001s", "99999999999h")
    },
    "no effect": Wrong(sleep(sleep="0", minLifetime="0s"), SLEEP, only_rule=True),
    # Globs.
    **{
        f"glob {glob!r}": Wrong(sleep(containers=["a", glob]), f"{SLEEP}.containers[1]")
        for glob in ("", "Prepare", "a.b", "a b", "[ab]", "é", "a\n", "a" * 64)
    },
    # Containers that run again, by name.
    "no containers that may run again": Wrong(
        policy_document(remedies={"retryInitExit255": {}}), f"{RETRY}.initContainers"
    ),
    "none that may run again": Wrong(retry(), f"{RETRY}.initContainers"),
    **{
        f"container {name!r}": Wrong(retry("a", name), f"{RETRY}.initContainers[1]")
        for name in ("*", "prepare-*", "?", "", "-a", "a-", "A", "a.b", "a\n", "é", "a" * 64)
    },
    # Gates.
    **{
        f"gate of {text!r}": Wrong(
            gate(timeout=text), f"{REMEDIES}.kubeletGate.timeout", only_rule=True
        )
        for text in ("0", "0s", "0.9ms", "61s")
    },
    # Limits on open files.
    "limits without a soft one": Wrong(limits(hard=1), f"{REMEDIES}.openFiles.soft"),
    **{
        f"soft limit {value!r}": Wrong(limits(soft=value), f"{REMEDIES}.openFiles.soft")
        for value in (0, -1, 1_048_577, 1.5, "65536", True, "infinity")
    },
    "hard limit that is too high": Wrong(
        limits(soft=1, hard=1_048_577), f"{REMEDIES}.openFiles.hard"
    ),
    "soft limit above the hard one": Wrong(
        limits(soft=2, hard=1), f"{REMEDIES}.openFiles.soft", only_rule=True
    ),
    "limits for no container": Wrong(
        limits(soft=1, containers=[]), f"{REMEDIES}.openFiles", only_rule=True
    ),
    **{
        f"node label {label!r}": Wrong(
            limits(soft=1, nodeLabel=label), f"{REMEDIES}.openFiles.nodeLabel"
        )
        for label in ("", "a", "=a", "a=b=c", "a b=c", f"a={'b' * 64}", f"{'a' * 64}=b")
    },
    # Targets of a start gate.
    **{
        f"start gate of {text!r}": Wrong(
            start_gate({"dns": "a"}, timeout=text), f"{START_GATE}.timeout", only_rule=True
        )
        for text in ("0", "121s")
    },
    "start gate without targets": Wrong(start_gate(), f"{START_GATE}.waitFor"),
    "start gate with nine targets": Wrong(start_gate(*[{"dns": "a"}] * 9), f"{START_GATE}.waitFor"),
    "target of no kind": Wrong(start_gate({}), f"{START_GATE}.waitFor[0]"),
    "target of two kinds": Wrong(
        start_gate({"dns": "a"}, {"tcp": "a:1", "dns": "a"}), f"{START_GATE}.waitFor[1]"
    ),
    "target of an unknown kind": Wrong(start_gate({"udp": "a:1"}), f"{START_GATE}.waitFor[0].udp"),
    **{
        f"{kind} target {text!r}": Wrong(
            start_gate({kind: text}), f"{START_GATE}.waitFor[0].{kind}"
        )
        for kind, texts in {
            "tcp": ("a", "a:0", "a:65536", "A:1", "a_b:1", "[::1]", "[g]:1", "a:1\n", "$(A):1"),
            "http": (
                "a",
                "https://a/",
                "http://a b/",
                "http://a/$(B)",
                "http://a/,",
                "http://a/#b",
            ),
            "dns": ("", "*.a", "a:1", "a..", "a" * 255, "a/b"),
        }.items()
        for text in texts
    },
    # What is Recursive.
    **{
        f"{value!r} as change policy": Wrong(
            change_policy(value), f"{REMEDIES}.seLinuxChangePolicy"
        )
        for value in ("MountOption", "recursive", "", 5, True)
    },
    **{
        f"{value!r} as policy for fsGroup": Wrong(
            policy_document(remedies={"fsGroupChangePolicy": value}),
            f"{REMEDIES}.fsGroupChangePolicy",
        )
        for value in ("Always", "onRootMismatch", "", 5, True)
    },
    # RuntimeClasses.
    "two classes": Wrong(
        policy_document(
            remedies={
                "runtimeClass": {"name": "a"},
                "skipSELinuxRelabel": {"runtimeClassName": "b"},
            }
        ),
        f"{REMEDIES}.skipSELinuxRelabel.runtimeClassName",
        only_rule=True,
    ),
    "no name of a class": Wrong(
        policy_document(remedies={"runtimeClass": {"name": "A_b"}}), f"{REMEDIES}.runtimeClass.name"
    ),
    # Images.
    "images from nowhere": Wrong(images(lookup="Registry"), IMAGES, only_rule=True),
    **{
        f"registry {registry[:20]!r}": Wrong(
            images(registries=["a", registry]), f"{IMAGES}.registries[1]"
        )
        for registry in ("", "https://quay.io", "quay.io/a", "Quay.io", "a b", "a:x", "[::1", "é")
    },
    "too many registries": Wrong(images(registries=["a"] * 101), f"{IMAGES}.registries"),
    **{
        f"mirrored registry {registry!r}": Wrong(
            images(mirrors={"ok": "a", registry: "b"}), f"{IMAGES}.mirrors"
        )
        for registry in ("", "*.io", "http://a", "a/b", "A", "a:", "-a")
    },
    **{
        f"mirror {mirror!r}": Wrong(images(mirrors={"a": mirror}), f"{IMAGES}.mirrors.a")
        for mirror in ("", "*.io", "https://b", "b/", "b/A", "b:x", "b//", "é")
    },
    "mirror of nothing": Wrong(
        images(mirrors={"a": None}), f"{IMAGES}.mirrors.a", f"{IMAGES}.mirrors"
    ),
    "too many mirrors": Wrong(
        images(mirrors={str(number): "a" for number in range(101)}), f"{IMAGES}.mirrors"
    ),
    # Selectors.
    **{
        f"{operator} {further}": Wrong(requirement(operator, **further), ENTRY)
        for operator, further in (
            ("In", {}),
            ("In", {"values": []}),
            ("NotIn", {}),
            ("NotIn", {"values": []}),
            ("Exists", {"values": ["b"]}),
            ("DoesNotExist", {"values": ["b"]}),
        )
    },
    "bad value of an entry": Wrong(requirement("In", values=["b", "c d"]), f"{ENTRY}.values[1]"),
    "bad key of an entry": Wrong(requirement("Exists", key="a b"), f"{ENTRY}.key"),
    **{
        f"label key {key!r}": Wrong(labels({"ok": "", key: "c"}), MATCHED)
        for key in ("", "a b", "-a", "a" * 64, "/a", "a/", "A/b", "a/b/c", "a\n", "é")
    },
    **{
        f"label value {value!r}": Wrong(labels({"a": value}), f"{MATCHED}.a")
        for value in ("b c", "-b", "b-", "b" * 64, "b/c", "b\n", "é")
    },
    "label of nothing": Wrong(labels({"a": None}), f"{MATCHED}.a", MATCHED),
    # Names.
    **{
        f"name {name[:9]!r}": Wrong(policy_document(name), "metadata.name")
        for name in ("", "P", "a_b", "-a", "a..b", "a" * (LONGEST_NAME + 1))
    },
    "number as name": Wrong(
        {**policy_document(), "metadata": {"name": 5}}, "metadata.name", "ObjectMeta.name"
    ),
}
