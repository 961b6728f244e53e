"""A registry that wants a password, for podsettle beside a real API server."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from tests.support.kube.cluster import Json
from tests.support.pull_secrets import docker_config
from tests.support.registry import PASSWORD, USER, basic, htpasswd, image_of, start_registry
from webhook.core.pull_secrets import DOCKER_CONFIG_JSON


@contextmanager
def private_registry(directory: Path, ca: trustme.CA, program: str) -> Iterator[tuple[str, Json]]:
    """Run a registry while the block runs. Yield an image and the Secret `registry`."""
    directory.mkdir()
    with start_registry(directory, ca, authorize=basic, auth=htpasswd(directory)) as registry:
        registry.push("team/private", "1", image_of([program]))
        content = docker_config({registry.host: (USER, PASSWORD)}).content
        secret = {
            "metadata": {"name": "registry"},
            "type": DOCKER_CONFIG_JSON,
            "data": {".dockerconfigjson": base64.b64encode(content).decode()},
        }
        yield f"{registry.host}/team/private:1", secret
