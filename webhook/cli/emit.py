"""The reports of commands for programs: JSON, or the same as YAML."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from webhook.cli.echo import echo_document

if TYPE_CHECKING:
    from pydantic import BaseModel


def emit(report: BaseModel | list[Any] | dict[str, Any], output: str) -> None:
    """Print a report as `json` or `yaml`. The keys of a model are in camelCase."""
    if isinstance(report, list | dict):
        text = json.dumps(report, indent=2)
    else:
        text = report.model_dump_json(by_alias=True, indent=2)
    echo_document(text, output)
