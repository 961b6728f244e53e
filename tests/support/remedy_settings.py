"""Hypothesis strategies for the settings of remedies, derived from the schemas of the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.support.factories import Json, container, pod
from webhook.core.remedies.base import Remedy

Strategy: TypeAlias = st.SearchStrategy[Any]

SETTINGS_OF_A_CHANGE: dict[str, Any] = {
    "runtimeClass": {"name": "fast"},
    "skipSELinuxRelabel": {"runtimeClassName": "fast"},
    "seLinuxChangePolicy": "Recursive",
    "fsGroupChangePolicy": "OnRootMismatch",
    "postInitSleep": {"containers": ["*"]},
    "openFiles": {"soft": 65536, "initContainers": ["*"]},
    "startGate": {"waitFor": [{"dns": "a"}]},
    "retryInitExit255": {"initContainers": ["a", "b"]},
    "kubeletGate": {},
}
"""For each remedy: settings with which it changes FULL_POD. The RuntimeClass is `fast`."""
FULL_POD = pod(
    container("a", "/a"),
    container("b", "sh", "-c", "b"),
    restartPolicy="Never",
    securityContext={"fsGroup": 5, "seLinuxOptions": {"level": "s0:c1,c2"}},
    volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
)


def _objects(required: dict[str, Any], /, **optional: Strategy) -> Strategy:
    return st.fixed_dictionaries(required, optional=optional)


def settings_of(
    remedy: Remedy[Any],
    texts: Mapping[str, Strategy],
    vary: Callable[[Strategy], Strategy] = lambda values: values,
    objects: Callable[..., Strategy] = _objects,
) -> Strategy:
    """Return a strategy for a remedy's settings.

    `texts` has strategies for patterns of texts in a schema. Texts with another pattern are drawn
    by it. `vary` is applied to the strategies of all other values. `objects` takes the required
    keys as a dictionary and the optional ones as keyword arguments.

    Raises LookupError for a value of a kind that has no strategy here.
    """

    whole = TypeAdapter(remedy.settings).json_schema()

    def values(schema: Json, path: str) -> Strategy:
        match schema:
            case {"$ref": reference}:
                return values(whole["$defs"][reference.rpartition("/")[2]], path)
            case {"const": only}:
                return vary(st.just(only))
            case {"enum": choices}:
                return vary(st.sampled_from(choices))
            case {"anyOf": [inner, {"type": "null"}]}:
                return values(inner, path)
            case {"type": "integer", "minimum": least, "maximum": most}:
                return vary(st.integers(least, most))
            case {"type": "boolean"}:
                return vary(st.booleans())
            case {"type": "string", "pattern": pattern}:
                if pattern in texts:
                    return texts[pattern]
                return vary(st.from_regex(pattern, fullmatch=True))
            case {"type": "array", "items": items}:
                least = schema.get("minItems", 0)
                return vary(st.lists(values(items, path), min_size=least, max_size=least + 2))
            case {"type": "object", "properties": properties, "maxProperties": 1}:
                keys = {key: values(inner, f"{path}.{key}") for key, inner in properties.items()}
                one_key = st.one_of([objects({key: value}) for key, value in keys.items()])
                return vary(one_key)
            case {"type": "object", "properties": properties}:
                keys = {key: values(inner, f"{path}.{key}") for key, inner in properties.items()}
                required = {key: keys.pop(key) for key in schema.get("required", ())}
                return vary(objects(required, **keys))
        raise LookupError(f"{path}: no strategy for {schema}; add one to {__name__}")

    return values(whole, remedy.name)
