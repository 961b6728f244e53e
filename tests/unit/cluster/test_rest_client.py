"""What importing the client of the API server brings along."""

from __future__ import annotations

import subprocess
import sys

_THE_REST = ("requests", "urllib3", "oauthlib", "websocket", "kubernetes.client")


def _run(*lines: str) -> str:
    """The output of a Python that has imported nothing yet."""
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    ).stdout


def test_the_rest_of_the_package_is_not_loaded() -> None:
    said = _run(
        "import sys, webhook.cluster.controller",
        f"print([name for name in {_THE_REST} if name in sys.modules])",
    )

    assert said == "[]\n"


def test_other_submodules_can_be_imported_later() -> None:
    said = _run(
        "import webhook.cluster.rest_client as ours",
        "import kubernetes.client, kubernetes.aio.client",
        "from kubernetes.aio import watch",
        "print(kubernetes.client.V1Pod.__name__, watch.Watch.__name__)",
        "print(kubernetes.aio.client.Configuration is ours.Configuration)",
    )

    assert said == "V1Pod Watch\nTrue\n"


def test_a_package_that_is_loaded_already_stays() -> None:
    said = _run(
        "import kubernetes as loaded",
        "import webhook.cluster.rest_client",
        "import kubernetes",
        "print(kubernetes is loaded)",
    )

    assert said == "True\n"
