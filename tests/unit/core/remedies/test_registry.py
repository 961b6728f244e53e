"""Tests of the registry of remedies and of what each remedy declares."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import pytest
from hypothesis import given

from tests.support.examples import examples
from tests.support.factories import Json, decide_pod
from tests.support.remedy_settings import settings_of
from tests.support.strategies import PODS, SETTINGS, VIEWS
from webhook.cluster.snapshot import Snapshot
from webhook.core import remedies
from webhook.core.admission.decide import OperatorSettings
from webhook.core.policy.model import Remedies
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.base import Remedy
from webhook.core.types import StrictModel

PACKAGE = remedies.__name__
MODULES = {
    name: import_module(f"{PACKAGE}.{name}") for _, name, _ in iter_modules(remedies.__path__)
}
REMEDY_MODULES = {name: m.REMEDY for name, m in MODULES.items() if hasattr(m, "REMEDY")}

GENERAL_REASONS = {Reason.POD_OPTED_OUT, Reason.WOULD_APPLY}
"""The reasons that every remedy can have, because the caller gives them."""


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


@pytest.mark.parametrize("name", REMEDIES)
def test_remedy_is_listed_by_its_name_with_a_description(name: str) -> None:
    assert REMEDIES[name].name == name
    assert REMEDIES[name].description.endswith(".")


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


@pytest.mark.parametrize("name", REMEDIES)
def test_each_declared_reason_occurs_in_a_test_of_the_remedy(name: str) -> None:
    texts = (path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    words = {word for text in texts if name in text for word in re.findall(r"\w+", text)}
    missing = {r for r in REMEDIES[name].reasons if r.value not in words and r.name not in words}
    assert missing == set()


@examples(300)
@given(document=PODS, seen=VIEWS, settings=SETTINGS)
def test_outcomes_of_any_pod_have_only_declared_reasons(
    document: Json, seen: Snapshot, settings: OperatorSettings
) -> None:
    for outcome in decide_pod(document, seen, settings=settings).outcomes:
        if outcome.remedy:
            assert outcome.reason in REMEDIES[outcome.remedy].reasons | GENERAL_REASONS


def test_value_without_a_strategy_is_named() -> None:
    class Settings(StrictModel):
        amount: float

    remedy: Remedy[Settings] = Remedy(
        name="odd",
        description="",
        settings=Settings,
        apply=lambda *_: iter(()),
        reasons=frozenset(),
    )
    with pytest.raises(LookupError, match=r"^odd\.amount: no strategy for .*number"):
        settings_of(remedy, {})
