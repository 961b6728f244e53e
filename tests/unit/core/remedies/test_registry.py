"""Tests of the registry of remedies and of what each remedy declares."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from tests.support import reviews
from tests.support.examples import examples
from tests.support.factories import (
    Json,
    decide_pod,
    mutate_pod,
    policy,
    runtime_class,
    view,
)
from tests.support.remedy_settings import FULL_POD, SETTINGS_OF_A_CHANGE, settings_of
from tests.support.strategies import PODS, SETTINGS, TEXTS_OF_SETTINGS, VIEWS, is_valid
from webhook.core import remedies
from webhook.core.admission.decider import OperatorSettings
from webhook.core.admission.summary import summary_of
from webhook.core.defects.versions import Version
from webhook.core.patch.edits import Edit
from webhook.core.pod import DECODE_ERRORS, decode_pod
from webhook.core.policy.model import Remedies
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES

PACKAGE = remedies.__name__
MODULES = {
    name: import_module(f"{PACKAGE}.{name}") for _, name, _ in iter_modules(remedies.__path__)
}
REMEDY_MODULES = {name: m.REMEDY for name, m in MODULES.items() if hasattr(m, "REMEDY")}

GENERAL_REASONS = {Reason.POD_OPTED_OUT, Reason.WOULD_APPLY}
"""The reasons that every remedy can have, because the caller gives them."""


def is_readable(document: Json) -> bool:
    try:
        decode_pod(json.dumps(document).encode())
    except DECODE_ERRORS:
        return False
    return True


READABLE_PODS = PODS.filter(is_readable)
REAL_PODS = [reviews.load_pod(path) for path in reviews.PODS]


def imported_modules(module: ModuleType) -> set[str]:
    """Return the names of the modules of the package that a module imports, directly or not."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        for node in ast.walk(ast.parse(inspect.getsource(waiting.pop()))):
            if not isinstance(node, ast.ImportFrom):
                continue
            if node.module == PACKAGE:
                names = {alias.name for alias in node.names}
            else:
                parent, _, name = (node.module or "").rpartition(".")
                names = {name} if parent == PACKAGE else set()
            waiting += [MODULES[name] for name in names - found]
            found |= names
    return found


def test_every_module_with_a_remedy_is_in_the_registry() -> None:
    assert {id(remedy) for remedy in REMEDY_MODULES.values()} == set(map(id, REMEDIES.values()))


@pytest.mark.parametrize("name", REMEDY_MODULES)
def test_remedy_imports_no_other_remedy(name: str) -> None:
    assert imported_modules(MODULES[name]) & REMEDY_MODULES.keys() <= {name}


def test_policies_have_the_remedies_in_the_order_of_application() -> None:
    assert list(Remedies.model_fields) == list(REMEDIES)


def test_remedy_is_listed_by_its_name_with_a_description() -> None:
    assert [remedy.name for remedy in REMEDIES.values()] == list(REMEDIES)
    assert all(remedy.description.endswith(".") for remedy in REMEDIES.values())


def reasons_in_functions(module: ModuleType) -> set[Reason]:
    """Return the reasons that occur in the functions and classes of a module."""
    definitions = (
        node
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    )
    return {
        Reason[node.attr]
        for definition in definitions
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Reason"
    }


@pytest.mark.parametrize("name", REMEDY_MODULES)
def test_remedy_declares_exactly_the_reasons_in_its_code(name: str) -> None:
    modules = [MODULES[each] for each in {name, *imported_modules(MODULES[name])}]
    in_code = set().union(*map(reasons_in_functions, modules))
    assert set(REMEDY_MODULES[name].reasons) == in_code


@examples(150)
@given(document=READABLE_PODS, seen=VIEWS, options=SETTINGS)
def test_outcomes_of_any_pod_have_only_declared_reasons(
    document: Json, seen: Snapshot, options: OperatorSettings
) -> None:
    for outcome in decide_pod(document, seen, settings=options).outcomes:
        if outcome.remedy:
            assert outcome.reason in REMEDIES[outcome.remedy].reasons | GENERAL_REASONS


def is_valid_for(name: str, chosen: Any) -> bool:
    return is_valid({name: chosen})


def annotation_edits(keys: Iterable[str]) -> Iterator[str]:
    """Yield an edit for each annotation, except those in which podsettle keeps its records."""
    yield from (Edit.ANNOTATION for key in keys if not key.startswith("podsettle.dev"))


def field_paths(path: str, value: Any) -> Iterator[str]:
    """Yield the path of each field that an operation sets, also below an absent parent."""
    if not isinstance(value, dict):
        yield path
        return
    for key, inner in value.items():
        yield from field_paths(f"{path}/{key}", inner)


def edits_in(operations: Iterable[Any]) -> Iterator[str]:
    """Yield the kind of each edit of a remedy, or the path if it sets a field of the spec."""
    for operation in operations:
        path: str = operation["path"]
        value: Any = operation.get("value")
        match path.split("/")[1:]:
            case ["metadata"]:
                yield from annotation_edits(value["annotations"])
            case ["metadata", "annotations"]:
                yield from annotation_edits(value)
            case ["metadata", "annotations", key]:
                yield from annotation_edits([key])
            case ["spec", "volumes", *_]:
                yield Edit.VOLUME
            case ["spec", "initContainers"] | ["spec", "initContainers", _]:
                yield Edit.INIT_CONTAINER
            case ["spec", "initContainers" | "containers", _, "command" | "args"]:
                yield Edit.COMMAND
            case ["spec", "initContainers" | "containers", _, "volumeMounts", *_]:
                yield Edit.MOUNT
            case ["spec", "initContainers", _, "restartPolicy" | "restartPolicyRules"]:
                yield Edit.RESTART_RULES
            case _:
                yield from field_paths(path, value)


def edits_of(name: str, chosen: Any, document: Json) -> set[str]:
    """Return the edits that a pod gets from one remedy, where every node needs it."""
    classes = [runtime_class("fast"), runtime_class("slow")]
    seen = view(policy(remedies={name: chosen}), classes=classes, server=Version(1, 36))
    return set(edits_in(decide_pod(document, seen).operations))


def never_restarting(document: Json) -> Json:
    """Return a pod that its restartPolicy lets more remedies change."""
    return {**document, "spec": {**document["spec"], "restartPolicy": "Never"}}


SETTINGS_BY_REMEDY = {
    name: settings_of(remedy, TEXTS_OF_SETTINGS).filter(partial(is_valid_for, name))
    for name, remedy in REMEDIES.items()
}


@given(document=READABLE_PODS, chosen=st.fixed_dictionaries(SETTINGS_BY_REMEDY))
def test_any_pod_gets_only_declared_edits(document: Json, chosen: Json) -> None:
    for name, remedy in REMEDIES.items():
        undeclared = edits_of(name, chosen[name], document) - (remedy.edits | remedy.fields)
        assert not undeclared, f"{name}: its edits and fields lack {undeclared}"


@pytest.mark.parametrize(
    ("name", "edit"),
    [(name, edit) for name, each in REMEDIES.items() for edit in sorted(each.edits | each.fields)],
)
@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # The pod that is found.
def test_a_pod_gets_the_declared_edit(name: str, edit: str) -> None:
    # `find` raises NoSuchExample if no pod gets the edit. Without shrinking it ends at the first.
    # Real pods shorten the search, because few generated pods have several fields of one remedy.
    pods = st.sampled_from(REAL_PODS) | READABLE_PODS
    find(
        st.tuples(SETTINGS_BY_REMEDY[name], pods.map(never_restarting)),
        lambda drawn: edit in edits_of(name, *drawn),
        settings=settings(max_examples=5_000, phases=[Phase.generate], derandomize=True),
    )


PARTICIPLE = r"(\w+ed|given|held|kept|put|set)\b"


@pytest.mark.parametrize("name", REMEDIES)
def test_phrases_of_a_remedy_follow_every_verb(name: str) -> None:
    classes = [runtime_class("fast")]
    mutating, auditing = (
        view(
            policy(remedies={name: SETTINGS_OF_A_CHANGE[name]}, action=action),
            classes=classes,
            server=Version(1, 36),
        )
        for action in ("Mutate", "Audit")
    )
    settled = mutate_pod(FULL_POD, mutating)
    for document, seen, verb in (
        (FULL_POD, mutating, "(is|are)"),
        (FULL_POD, auditing, "would be"),
        (settled, mutating, "(is|are) already"),
    ):
        summary = summary_of(decide_pod(document, seen).outcomes)
        assert re.match(f"(The pod|a and b|a, b and main) {verb} {PARTICIPLE}", summary)
    for outcome in decide_pod(FULL_POD, auditing).outcomes:
        assert re.match(f"would be {PARTICIPLE}", outcome.message)


@pytest.mark.parametrize(
    ("name", "settings", "effect"),
    [
        ("postInitSleep", {}, "kept alive for at least 500 ms"),
        ("postInitSleep", {"minLifetime": "2s"}, "kept alive for at least 2 s"),
        ("postInitSleep", {"minLifetime": "0s"}, "kept alive for 10 ms after the command ends"),
        ("openFiles", {"soft": 65536}, "given a soft limit of 65,536 open files"),
        ("openFiles", {"soft": 1024, "hard": 65536},
         "given a soft limit of 1,024 open files, 65,536 hard"),
        ("retryInitExit255", {"initContainers": ["a"]}, "started again after exit code 255"),
        ("kubeletGate", {},
         "held until its node's kubelet has a serving certificate, for at most 30 s"),
        ("startGate", {"waitFor": [{"dns": "a.b"}]}, "held until a.b answers, for at most 15 s"),
        ("startGate", {"waitFor": [{"tcp": "a:80"}, {"dns": "b"}], "timeout": "2m"},
         "held until a:80 and 1 more answer, for at most 120 s"),
        ("skipSELinuxRelabel", {},
         "started without relabelling volumes that have the right label"),
        ("skipSELinuxRelabel", {"runtimeClassName": "fast"},
         "started under RuntimeClass fast without relabelling volumes that have the right label"),
        ("runtimeClass", {"name": "fast"}, "put under RuntimeClass fast"),
        ("seLinuxChangePolicy", "Recursive", "set to seLinuxChangePolicy Recursive"),
        ("fsGroupChangePolicy", "OnRootMismatch", "set to fsGroupChangePolicy OnRootMismatch"),
    ],
)  # fmt: skip
def test_effect_of_a_remedy_is_a_phrase_for_the_summary(
    name: str, settings: Any, effect: str
) -> None:
    parsed = policy(remedies={name: settings}).spec.settings()[name]
    assert REMEDIES[name].effect(parsed) == effect


@given(chosen=st.fixed_dictionaries(SETTINGS_BY_REMEDY))
def test_every_effect_is_short_and_has_no_capital_and_no_period(chosen: dict[str, Any]) -> None:
    for name, value in chosen.items():
        effect = REMEDIES[name].effect(policy(remedies={name: value}).spec.settings()[name])
        assert effect[0].islower()
        assert effect.isprintable()
        assert not effect.endswith(".")
        assert len(effect.encode()) <= 350
