"""The applier of patches gives the same results as jsonpatch, and refuses the same patches."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonpatch
import jsonpointer
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.factories import Json, decide_pod
from tests.support.reviews import PODS, load_pod
from tests.support.strategies import SETTINGS, VIEWS
from webhook.core.admission.decider import OperatorSettings
from webhook.core.patch.apply import ApplyError, apply_operations
from webhook.core.policy.snapshot import Snapshot

REFUSED = object()
REAL_PODS = [load_pod(path) for path in PODS]
SEGMENTS = st.sampled_from(
    ["a", "b", "-", "0", "1", "2", "3", "00", "01", "+1", "-1", "1.0", " 1", "\u0661", "1" * 5000,
     "", "~0", "~1", "~01", "~10", "~", "~2", "a~", "é", "a~1b"]
)  # fmt: skip
KEYS = st.sampled_from(["a", "b", "-", "0", "01", "", "~", "/", "~1", "a/b", "é"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("a0é")
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
CONTAINERS = st.dictionaries(KEYS, DOCUMENTS, min_size=1, max_size=4) | st.lists(
    DOCUMENTS, min_size=1, max_size=4
)
NAMES = st.sampled_from(["add", "replace", "move"])


def pointers(document: Any, prefix: str = "") -> Iterator[str]:
    """Yield the path of every part of a document."""
    if isinstance(document, dict):
        children = {f"{prefix}/{jsonpointer.escape(key)}": document[key] for key in document}
    elif isinstance(document, list):
        children = {f"{prefix}/{index}": child for index, child in enumerate(document)}
    else:
        return
    for path, child in children.items():
        yield path
        yield from pointers(child, path)


@st.composite
def paths(draw: st.DrawFn, document: Any) -> str:
    """Draw a path: mostly one of the document or a neighbour of it, sometimes any other."""
    existing = [*pointers(document)]
    path = draw(st.sampled_from(existing)) if existing else "/a"
    kind = draw(st.integers(0, 19))
    if kind == 0:
        return draw(st.lists(SEGMENTS, min_size=1, max_size=3).map(lambda s: "/" + "/".join(s)))
    if kind == 1:
        return path.lstrip("/") or "a"
    if kind <= 5:
        return f"{path.rpartition('/')[0]}/{draw(SEGMENTS)}"
    return f"{path}/{draw(SEGMENTS)}" if kind == 6 else path


@st.composite
def patches(draw: st.DrawFn) -> tuple[Any, list[Json]]:
    """Draw a document and operations. Most paths exist in the document at that point."""
    document = current = draw(CONTAINERS)
    operations: list[Json] = []
    for _ in range(draw(st.integers(1, 4))):
        operation: Json = {"op": draw(NAMES), "path": draw(paths(current))}
        # jsonpatch 1.34 does not replace a member `-`, and moves some values into themselves.
        if operation["op"] == "replace" and operation["path"].endswith("/-"):
            continue
        if operation["op"] == "move":
            operation["from"] = draw(paths(current))
            if operation["path"].startswith(f"{operation['from']}/"):
                continue
        else:
            operation["value"] = draw(DOCUMENTS)
        operations.append(operation)
        current = apply_with_jsonpatch(current, [operation])
        if current is REFUSED:
            break
    return document, operations


def apply(document: Any, operations: list[Json]) -> Any:
    """Apply with podsettle's applier. Return the result, or REFUSED."""
    result, received = copy.deepcopy((document, operations))
    try:
        apply_operations(result, received)
    except ApplyError:
        return REFUSED
    finally:
        assert received == operations, "the operations were changed"
    return result


def apply_with_jsonpatch(document: Any, operations: list[Json]) -> Any:
    """Apply with jsonpatch. Return the result, or REFUSED."""
    result, received = copy.deepcopy((document, operations))
    try:
        return jsonpatch.apply_patch(result, received, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError):
        # jsonpatch 1.34 raises TypeError for a move from the index `-`.
        return REFUSED


def require_same(document: Any, operations: list[Json]) -> Any:
    """Apply with both. Check that the results are the same JSON. Return the result."""
    ours, theirs = apply(document, operations), apply_with_jsonpatch(document, operations)
    assert (ours is REFUSED) == (theirs is REFUSED)
    if ours is not REFUSED:
        assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)
    return ours


@examples(1500)
@given(patches())
def test_generated_patches_give_the_same_results_and_refusals_as_jsonpatch(
    patch: tuple[Any, list[Json]],
) -> None:
    result = require_same(*patch)
    event("refused" if result is REFUSED else "applied")


@examples(300)
@given(st.sampled_from(REAL_PODS), VIEWS, SETTINGS, st.data())
def test_patches_of_real_pods_give_the_same_results_and_refusals_as_jsonpatch(
    pod: Json, seen: Snapshot, settings: OperatorSettings, data: st.DataObject
) -> None:
    operations = [*decide_pod(pod, seen, settings=settings).operations]
    event(f"operations: {bool(operations)}")
    assume(operations)
    assert require_same(pod, operations) is not REFUSED
    # The same patch for a pod that lacks a part, and with another path.
    reduced = copy.deepcopy(pod)
    part = data.draw(st.sampled_from([*pointers(pod)]))
    jsonpatch.apply_patch(reduced, [{"op": "remove", "path": part}], in_place=True)
    require_same(reduced, operations)
    number = data.draw(st.integers(0, len(operations) - 1))
    operations[number] = {**operations[number], "path": data.draw(paths(pod))}
    require_same(pod, operations)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/gone/a", "value": 1},
        {"op": "add", "path": "/list/3", "value": 1},
        {"op": "add", "path": "/a~2", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "add", "value": 1},
        {"op": "replace", "path": "/list/2", "value": 1},
        {"op": "replace", "path": "/list"},
        {"op": "move", "from": "/list", "path": "/list/0"},
        {"op": "move", "path": "/a"},
        {"path": "/a", "value": 1},
        {"op": "unknown", "path": "/a", "value": 1},
    ],
)
def test_operations_that_do_not_apply_are_refused(operation: Json) -> None:
    """The property above finds every other way not to apply."""
    document = {"list": [{}, 2]}
    assert apply_with_jsonpatch(document, [operation]) is REFUSED
    with pytest.raises(ApplyError, match=f"^{operation.get('op')} "):
        apply_operations(document, [operation])


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "", "value": {}},
        {"op": "replace", "path": "", "value": {}},
        {"op": "move", "from": "", "path": ""},
        {"op": "move", "from": "/a", "path": ""},
    ],
)
def test_path_to_the_whole_document_is_refused(operation: Json) -> None:
    document: Json = {"a": {}}
    with pytest.raises(ApplyError, match="path of a part"):
        apply_operations(document, [operation])


@pytest.mark.parametrize("name", ["remove", "copy", "test"])
def test_operations_that_the_builder_never_makes_are_refused(name: str) -> None:
    with pytest.raises(ApplyError, match=f"{name} /a: only add, replace and move"):
        apply_operations({"a": 1}, [{"op": name, "path": "/a", "from": "/a", "value": 1}])
