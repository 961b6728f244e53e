"""Tests of the registry of remedies and of what each remedy declares."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

from tests.support.remedy_settings import settings_of
from webhook.core import remedies
from webhook.core.policy.model import Remedies
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.base import Remedy
from webhook.core.types import StrictModel

PACKAGE = remedies.__name__
MODULES = {
    name: import_module(f"{PACKAGE}.{name}") for _, name, _ in iter_modules(remedies.__path__)
}
REMEDY_MODULES = {name: m.REMEDY for name, m in MODULES.items() if hasattr(m, "REMEDY")}


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


def test_value_without_a_strategy_is_named() -> None:
    class Settings(StrictModel):
        amount: float

    remedy: Remedy[Settings] = Remedy(
        name="odd", description="", settings=Settings, apply=lambda *_: iter(())
    )
    with pytest.raises(LookupError, match=r"^odd\.amount: no strategy for .*number"):
        settings_of(remedy, {})
