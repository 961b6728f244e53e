"""The JSON form of an object for which a preview shows no pod."""

from __future__ import annotations

from dataclasses import dataclass, field

from webhook.core.json_path import json_path
from webhook.core.preview.document import Document
from webhook.core.preview.pods_in_document import PassedOver


def _description(text: str) -> dict[str, str]:
    """Return the metadata of a field with which pydantic describes it in the OpenAPI document."""
    return {"description": text}


# No pydantic model, because the worker process of a preview starts without pydantic.
@dataclass(frozen=True, slots=True)
class ObjectWithoutPod:
    """An object for which no pod can be shown."""

    kind: str = field(metadata=_description("Empty if the object has no kind."))
    name: str
    namespace: str = field(
        metadata=_description("The namespace that the object names. Empty if it names none.")
    )
    source: str = field(metadata=_description("The file, or `body` for the request's body."))
    line: int = field(
        metadata=_description("The line of the source at which the object begins, from 1.")
    )
    path: str = field(
        metadata=_description("The object's path in the document. Empty for the document itself.")
    )
    message: str = field(metadata=_description("Why there is no pod, and what to preview instead."))

    def __str__(self) -> str:
        """Return a line such as `pods.yaml:3: Service/web: a Service holds no pod`."""
        title = f"{self.kind}/{self.name or '(unnamed)'}: " if self.kind else ""
        return f"{self.source}:{self.line}: {title}{self.message}"


def render_passed_over(passed_over: PassedOver, document: Document) -> ObjectWithoutPod:
    """Return the JSON form of an object without a pod."""
    return ObjectWithoutPod(
        kind=passed_over.kind,
        name=passed_over.name,
        namespace=passed_over.namespace or "",
        source=document.source,
        line=document.line(passed_over.steps),
        path=json_path(passed_over.steps),
        message=passed_over.message,
    )
