"""FastAPI, imported without what nothing here asks for."""

from __future__ import annotations

import subprocess
import sys

_LOOK = """
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


def test_what_only_the_openapi_document_needs_is_not_made_at_the_start() -> None:
    ran = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
