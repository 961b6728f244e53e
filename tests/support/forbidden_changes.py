"""An oracle of the changes that podsettle must never make, independent of the implementation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from tests.support.strategies import GATE, HELPER, OWN_ANNOTATIONS, START_GATE
from webhook.core.remedies import REMEDIES

SETTABLE_FIELDS = {path for remedy in REMEDIES.values() for path in remedy.fields}
PARENTS = {"/metadata"} | {
    "/".join(steps[:end])
    for steps in (path.split("/") for path in SETTABLE_FIELDS)
    for end in range(3, len(steps))
}
"""The objects that a patch may create, such as `/spec/securityContext`."""
OPEN_TO_CHANGE = {
    *("/metadata/annotations", "/spec/volumes", "/spec/initContainers"),
    *SETTABLE_FIELDS,
    *PARENTS,
}
VALUES = {
    path: get_args(remedy.settings)
    for remedy in REMEDIES.values()
    if get_origin(remedy.settings) is Literal
    for path in remedy.fields
}
"""The texts that a remedy with one value may set. Such a value can also stand for `false`."""


def is_object(value: Any, path: str) -> bool:
    return isinstance(value, dict) or (value is None and path in PARENTS)


def forbidden(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield each change that podsettle must never make."""
    match path:
        case "/metadata/annotations":
            before, after = before or {}, after or {}
            yield from (f"{path}: {k}" for k in before.keys() - after.keys())
            changed = (k for k, value in after.items() if before.get(k) != value)
            yield from (f"{path}: {k}" for k in changed if k not in OWN_ANNOTATIONS)
        case _ if path in SETTABLE_FIELDS:
            values = VALUES.get(path) if isinstance(after, str) else None
            if before not in (None, [], {}, after) or after not in (before, *(values or [after])):
                yield path
        case "/spec/volumes":
            if after != before:
                before = before or []
                if after[:-1] != before or after[-1]["name"] != HELPER:
                    yield path
        case "/spec/initContainers" | "/spec/containers":
            yield from _containers(before, after, path)
        case _ if is_object(before, path) and is_object(after, path):
            before, after = before or {}, after or {}
            for key in before.keys() | after.keys():
                inner = f"{path}/{key}"
                if inner not in OPEN_TO_CHANGE and (key in before) != (key in after):
                    yield inner
                else:
                    yield from forbidden(before.get(key), after.get(key), inner)
        case _ if before != after:
            yield path


def _containers(before: Any, after: Any, path: str) -> Iterator[str]:
    if before == after:
        return
    before, after = before or [], after or []
    if path == "/spec/initContainers":
        for own in (HELPER, GATE, START_GATE):
            found = [c for c in after if c.get("name") == own]
            had = [c for c in before if c.get("name") == own]
            if len(found) > 1 or (had and found != had):
                yield f"{path}: {own}"
            if own == HELPER and found and after[0] != found[0] and not had:
                yield f"{path}: helper is not first"
        before = [c for c in before if c.get("name") not in (HELPER, GATE, START_GATE)]
        after = [c for c in after if c.get("name") not in (HELPER, GATE, START_GATE)]
    if [c.get("name") for c in before] != [c.get("name") for c in after]:
        yield f"{path}: names"
        return
    for old, new in zip(before, after, strict=True):
        for key in old.keys() | new.keys():
            if old.get(key) == new.get(key) and (key in old) == (key in new):
                continue
            if key == "command":
                if not old.get(key) or new[key][-len(old[key]) :] != old[key]:
                    yield f"{path}: command of {old.get('name')}"
            elif key in ("restartPolicy", "restartPolicyRules"):
                given = (new.get("restartPolicy"), len(new.get("restartPolicyRules") or ()))
                if path != "/spec/initContainers" or old.get(key) or given != ("Never", 1):
                    yield f"{path}: {key} of {old.get('name')}"
            elif key == "volumeMounts":
                if new[key][:-1] != (old.get(key) or []) or new[key][-1]["name"] != HELPER:
                    yield f"{path}: mounts of {old.get('name')}"
            else:
                yield f"{path}: {key} of {old.get('name')}"
