"""What changes in a cluster all the time, while pods are created."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from tests.support.e2e_pods import is_called
from tests.support.helm_release import POLICIES, Installation, Replica
from tests.support.kube.cluster import KubeCluster
from tests.support.reviews import PODS, load_pod

POLICY = "soak"


class Churn:
    """Edits of a policy, namespaces that come and go, and previews."""

    def __init__(self, installation: Installation, kept: Replica) -> None:
        """`kept` answers the previews."""
        self.failed: list[str] = []
        """What did not succeed."""
        self.done: dict[str, int] = {}
        """The number of repetitions of each action."""
        self._cluster: KubeCluster = installation.cluster
        self._kept = kept
        self._previews = [load_pod(path) for path in PODS]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Repeat all actions while the block runs."""
        over = threading.Event()
        actions = (
            ("edit of the policy", self._edit_policy, 2.0),
            ("namespace that comes and goes", self._come_and_go, 1.0),
            ("preview", self._preview, 5.0),
        )
        threads = [
            threading.Thread(target=self._repeat, args=(name, action, seconds, over), daemon=True)
            for name, action, seconds in actions
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _repeat(
        self, name: str, action: Callable[[int], None], seconds: float, over: threading.Event
    ) -> None:
        for number in count():
            try:
                action(number)
            except Exception as error:
                self.failed.append(f"{name}: {error!r}")
            self.done[name] = number + 1
            if over.wait(seconds):
                return

    def _edit_policy(self, number: int) -> None:
        spec = {"remedies": {"postInitSleep": {"minLifetime": f"{500 + number % 50}ms"}}}
        answer = self._cluster.request("PATCH", f"{POLICIES}/{POLICY}", {"spec": spec})
        assert answer.status == 200, answer.body

    def _come_and_go(self, _number: int) -> None:
        """Create a namespace and at once a pod in it, and delete the namespace."""
        name = self._cluster.namespace("soak-")
        assert is_called(self._cluster, name), f"a pod of the new namespace {name} is unsettled"
        path = f"/api/v1/namespaces/{name}"
        answer = self._cluster.request("DELETE", path)
        assert answer.status == 200, answer.body
        # There is no controller that empties the namespace and removes its finalizer.
        namespace = {"metadata": {"name": name}, "spec": {"finalizers": []}}
        answer = self._cluster.request("PUT", f"{path}/finalize", namespace)
        assert answer.status == 200, answer.body

    def _preview(self, number: int) -> None:
        body = self._previews[number % len(self._previews)]
        answer = self._kept.request("POST", "/preview", token=self._cluster.token, content=body)
        assert answer.status_code == 200, answer.text
