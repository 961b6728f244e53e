"""The manifests in certs/."""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.paths import CERTS

CONFIGURATION = ("MutatingWebhookConfiguration", "podsettle")


def documents(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    found = yaml.safe_load_all((CERTS / name).read_text())
    return {(one["kind"], one["metadata"]["name"]): one for one in found}
