"""FastAPI, without what nothing here asks for: an eighth of a start, and 3 MiB.

It describes the OpenAPI document in fifty pydantic models, and pydantic makes a validator for each:
here, when somebody asks for the document (`defer_build`). And for each route it imports pydantic's
version 1, to see whether a model is one of that: it goes by without, where there is none, as on
Python 3.14 (fastapi `_compat/shared.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict

__all__ = [
    "APIRouter",
    "Depends",
    "FastAPI",
    "HTMLResponse",
    "HTTPException",
    "JSONResponse",
    "PlainTextResponse",
    "Query",
    "Request",
    "Response",
]


@contextmanager
def _deferring() -> Iterator[None]:
    """Models that are made meanwhile get their validators later."""
    config = BaseModel.model_config
    BaseModel.model_config = ConfigDict(defer_build=True)
    try:
        yield
    finally:
        BaseModel.model_config = config


sys.modules.setdefault("pydantic.v1", None)  # type: ignore[arg-type]
with _deferring():
    from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response
    from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
