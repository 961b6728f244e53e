"""Pods in which one list, map or text is long."""

from __future__ import annotations

import copy
import json
from typing import Any

from tests.fuzz.inputs import Piece, Program, render
from tests.support.factories import Json, container, pod, review

POD = pod(
    container("c1", "sh", "-c", "x"),
    container("prepare"),
    containers=[container("main", "/x", volumeMounts=[{"name": "d", "mountPath": "/d"}])],
    labels={"l1": "", "l2": "x"},
    annotations={"podsettle.dev/skip": "x,y"},
    volumes=[{"name": "d", "persistentVolumeClaim": {}}],
    restartPolicy="Never",
    overhead={"cpu": "250m"},
    nodeSelector={"disk": "ssd"},
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"spec affinity nodeAffinity {_REQUIRED} nodeSelectorTerms"
_OBJECT, _NAMED, _TEXT, _ENTRY = "{ },", '{"name":"n{}"},', '"a{}",', '"k{}":"v",'
_ANNOTATION = "metadata annotations podsettle.dev/"

LONG_FIELDS: tuple[tuple[str, str], ...] = (
    *((f"metadata {name}", _ENTRY) for name in ("labels", "annotations")),
    *((f"metadata {name}", _NAMED) for name in ("ownerReferences", "managedFields")),
    ("metadata ownerReferences", '{"kind":"k{}"},'),
    ("metadata ownerReferences", _OBJECT),
    ("metadata finalizers", _TEXT),
    *((_ANNOTATION + name, "p/x,") for name in ("applied", "settled", "summary", "skipped")),
    *((_ANNOTATION + name, "é,") for name in ("applied", "skip")),
    ("spec nodeSelector", _ENTRY),
    ("spec overhead", _ENTRY),
    ("spec tolerations", '{"key":"a{}"},'),
    ("spec volumes", _NAMED),
    ("spec volumes", _OBJECT),
    ("spec imagePullSecrets", _NAMED),
    ("spec ephemeralContainers", '{"name":"c{}","command":["sh"]},'),
    ("spec hostAliases", _OBJECT),
    ("spec readinessGates", _OBJECT),
    ("spec resourceClaims", _NAMED),
    ("spec schedulingGates", _NAMED),
    ("spec topologySpreadConstraints", _OBJECT),
    ("spec resources limits", _ENTRY),
    ("spec dnsConfig searches", _TEXT),
    ("spec securityContext supplementalGroups", "1,"),
    ("spec securityContext sysctls", _NAMED),
    (f"spec affinity podAffinity {_REQUIRED}", _OBJECT),
    (_TERMS, _OBJECT),
    (_TERMS, '{"matchExpressions":[{"key":"n","operator":"Gt","values":["4"]}]},'),
    (f"{_TERMS} 0 matchExpressions", _OBJECT),
    (f"{_TERMS} 0 matchFields", _NAMED),
    (f"{_TERMS} 0 matchExpressions 0 values", _TEXT),
    ("spec initContainers", '{"name":"c{}","command":["sh"]},'),
    ("spec initContainers", _OBJECT),
    ("spec containers", '{"name":"c{}","command":["x"],"resources":{"limits":{"a{}":"1"}}},'),
    ("spec containers", _OBJECT),
    *(
        (f"spec {containers} 0 {field}", item)
        for containers in ("initContainers", "containers")
        for field, item in (
            ("command", _TEXT),
            ("command", '"",'),
            ("args", _TEXT),
            ("env", _NAMED),
            ("envFrom", _OBJECT),
            ("ports", _OBJECT),
            ("resizePolicy", _OBJECT),
            ("resources limits", '"k{}":"1",'),
            ("resources requests", '"k{}":"1",'),
            ("resources claims", _NAMED),
            ("restartPolicyRules", '{"action":"Restart","exitCodes":{"operator":"In"}},'),
            ("restartPolicyRules 0 exitCodes values", "1,"),
            ("volumeMounts", '{"name":"d","mountPath":"/a{}"},'),
            ("volumeMounts", '{"mountPath":"/podsettle-{}"},'),
            ("volumeDevices", _OBJECT),
            ("livenessProbe exec command", _TEXT),
            ("lifecycle preStop exec command", _TEXT),
            ("securityContext capabilities add", _TEXT),
        )
    ),
    *(
        (f"{path}", text)
        for path in (
            "metadata name", "metadata generateName", "spec nodeName", "spec runtimeClassName",
            "spec priorityClassName", "spec serviceAccountName", "spec nodeSelector disk",
            "spec overhead cpu", "spec securityContext seLinuxChangePolicy",
            "spec securityContext seLinuxOptions level", "spec initContainers 0 name",
            "spec initContainers 0 image", "spec containers 0 resources limits cpu",
        )
        for text in ("a", "é", "\\u0001")
    ),
)  # fmt: skip
"""The path of each field, and what is repeated in it. `{}` is the number of the repetition.

A text without a comma at its end, and one of an annotation, is a part of a string."""


def pod_with_long_field(path: str, item: str, times: int) -> Program:
    """Return a pod in which a field consists of an item, repeated so many times."""
    found = copy.deepcopy(POD)
    set_field(found, path, _in_kind(path, item, "MARK"))
    before, _, after = json.dumps(found).partition("MARK")
    if not _is_text(path, item):
        before, after = before.removesuffix('"'), after.removeprefix('"')
        after = after.removeprefix(': ""')
        after = item.removesuffix(",").replace("{}", "z") + after
    return (Piece(before), Piece(item, times), Piece(after))


def long_value(path: str, item: str, times: int) -> Any:
    """Return the value of such a field."""
    text = render((Piece(item, times), Piece(item.replace("{}", "z")))).decode()
    if _is_text(path, item):
        return json.loads(f'"{text}"')
    text = text.removesuffix(",")
    return json.loads(f"{{{text}}}" if _is_map(item) else f"[{text}]")


def set_field(document: Json, path: str, value: Any) -> None:
    """Set a field of a pod. The key 0 stands for the first item of a list."""
    here: Any = document
    keys = path.split(" ")
    for key, following in zip(keys, [*keys[1:], ""], strict=True):
        place: Any = int(key) if key.isdigit() else key
        if not following:
            here[place] = value
        elif isinstance(here, dict) and not here.get(key):
            here[key] = [{}] if following == "0" else {}
        here = here[place]


def reviewed(program: Program) -> Program:
    """Return a review of a pod."""
    before, _, after = json.dumps(review("MARK")).partition('"MARK"')
    return (Piece(before), *program, Piece(after))


def _in_kind(path: str, item: str, content: str) -> Any:
    if _is_text(path, item):
        return content
    return {content: ""} if _is_map(item) else [content]


def _is_text(path: str, item: str) -> bool:
    return not item.endswith(",") or path.startswith(_ANNOTATION)


def _is_map(item: str) -> bool:
    return item.startswith('"k{}":')
