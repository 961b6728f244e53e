"""The RuntimeClasses of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import StringConstraints

from webhook.core.constants import DNS_SUBDOMAIN

RuntimeClassName = Annotated[str, StringConstraints(pattern=f"^{DNS_SUBDOMAIN}$", max_length=253)]
"""The name of a RuntimeClass in a policy. The API server accepts only DNS subdomains."""


@dataclass(frozen=True, slots=True)
class RuntimeClassInfo:
    """The fields of a RuntimeClass (`node.k8s.io/v1`) that podsettle reads."""

    name: str
    handler: str
    overhead: Mapping[str, Any] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
