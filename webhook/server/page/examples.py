"""The examples of the preview page: a pod and a policy for five of the faults."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from webhook.core.constants import KIND

_NAMES = (
    "tekton-exit-255",
    "woodpecker-wait",
    "woodpecker-logs-tls",
    "containerd-slow-umount",
    "crio-selinux-relabel",
)
_SEPARATOR = "\n---\n"


def examples() -> list[dict[str, Any]]:
    """Return the examples: the title of each, a sentence about it, and the input of the page."""
    directory = files("webhook.server.page").joinpath("examples")
    return [_read(directory.joinpath(f"{name}.yaml")) for name in _NAMES]


def _read(file: Traversable) -> dict[str, Any]:
    """Return the example in a file. Two comments, the title and the sentence, begin the file.

    The documents after them are a Namespace, at most one policy, and the workload.
    """
    title, about, text = file.read_text(encoding="utf-8").split("\n", 2)
    documents = [f"{document.rstrip()}\n" for document in text.split(_SEPARATOR)]
    (namespace, *_), *_ = values = [(yaml.safe_load(document), document) for document in documents]
    labels = namespace["metadata"]["labels"]
    return {
        "title": title.removeprefix("# "),
        "about": about.removeprefix("# "),
        "namespace": namespace["metadata"]["name"],
        "labels": ", ".join(f"{key}={value}" for key, value in labels.items()),
        "policies": [
            {"name": value["metadata"]["name"], "text": document}
            for value, document in values
            if value["kind"] == KIND
        ],
        "workload": documents[-1],
        "path": "",
    }
