"""The explanation of a remedy. It needs no cluster."""

from __future__ import annotations

from typing import Any, get_args

from webhook.core.defects.catalogue import DEFECTS
from webhook.core.remedies import REMEDIES
from webhook.core.types import StrictModel
from webhook.inspect.explain.model import CuredDefect, RemedyExplanation, RemedySetting


def explain_remedy(name: str) -> RemedyExplanation:
    """Return what the remedy with a name does."""
    remedy = REMEDIES[name]
    return RemedyExplanation(
        remedy=name,
        description=remedy.description,
        defects=[
            CuredDefect(id=defect.id, title=defect.title, advice=defect.advice)
            for defect in DEFECTS
            if name in defect.remedies
        ],
        node_configuration=remedy.node_configuration,
        settings=_settings(remedy.settings),
        values=list(map(str, get_args(remedy.settings))),
        reasons=sorted(remedy.reasons),
    )


def _settings(model: Any) -> list[RemedySetting]:
    """Return the fields of a model of settings. A Literal has none."""
    if not (isinstance(model, type) and issubclass(model, StrictModel)):
        return []
    return [
        RemedySetting(name=field.alias or name, description=field.description or "")
        for name, field in model.model_fields.items()
    ]
