"""Workload documents, and the pods that are found in them."""

from __future__ import annotations

from typing import Any

from webhook.core.preview.document import Document
from webhook.core.preview.pods_in_document import PassedOver, Workload, pods_of

SPEC = {"containers": [{"name": "main"}], "unknown": [1]}
TEMPLATE = {"metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}}, "spec": SPEC}


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns"}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


def one(document: object, template_path: str | None = None) -> Workload:
    (found,) = pods_of(Document(document), template_path)
    assert isinstance(found, Workload), found
    return found


def pods(document: object, template_path: str | None = None) -> list[Workload]:
    found = list(pods_of(Document(document), template_path))
    assert all(isinstance(each, Workload) for each in found), found
    return [each for each in found if isinstance(each, Workload)]


def passed_over(document: object, template_path: str | None = None) -> PassedOver:
    (found,) = pods_of(Document(document), template_path)
    assert isinstance(found, PassedOver), found
    return found


def custom(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
