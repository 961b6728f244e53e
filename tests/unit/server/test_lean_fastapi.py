"""The postponed validators of FastAPI's models."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import sys
from webhook.server.app import create_app
from fastapi.openapi import models
from webhook.server.preview.route import PreviewAnswer

assert sys.modules["pydantic.v1"] is None
late = [m for m in vars(models).values() if isinstance(m, type) and m.__module__ == models.__name__]
assert sum(not getattr(m, "__pydantic_complete__", True) for m in late) > 20
assert PreviewAnswer.__pydantic_complete__
assert models.Contact.model_validate({"name": "x"}).name == "x"
"""


def test_validators_of_the_openapi_models_are_not_built_at_start() -> None:
    ran = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
