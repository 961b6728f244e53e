"""The packages that an import of the API client loads."""

from __future__ import annotations

import subprocess
import sys

_UNUSED_PACKAGES = ("requests", "urllib3", "oauthlib", "websocket", "kubernetes.client")


def _run(*lines: str) -> str:
    """Return the output of a new Python process."""
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    ).stdout


def test_import_does_not_load_the_synchronous_client() -> None:
    output = _run(
        "import sys, webhook.cluster.controller",
        f"print([name for name in {_UNUSED_PACKAGES} if name in sys.modules])",
    )

    assert output == "[]\n"


def test_other_submodules_can_be_imported_later() -> None:
    output = _run(
        "import webhook.cluster.rest_client as rest_client",
        "import kubernetes.client, kubernetes.aio.client",
        "from kubernetes.aio import watch",
        "print(kubernetes.client.V1Pod.__name__, watch.Watch.__name__)",
        "print(kubernetes.aio.client.Configuration is rest_client.Configuration)",
    )

    assert output == "V1Pod Watch\nTrue\n"


def test_package_that_is_already_loaded_stays() -> None:
    output = _run(
        "import kubernetes as loaded",
        "import webhook.cluster.rest_client",
        "import kubernetes",
        "print(kubernetes is loaded)",
    )

    assert output == "True\n"
