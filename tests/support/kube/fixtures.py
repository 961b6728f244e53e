"""What must exist before the pods in `tests/data/pods` can be created.

Little does. An API server checks that a pod's namespace, ServiceAccount, RuntimeClass and
PriorityClass exist, that the class's overhead is the pod's, and nothing else that a pod names: no
PersistentVolumeClaim, ConfigMap, Secret, image pull secret, owner or node.
"""

from __future__ import annotations

from tests.support.kube.cluster import Json, KubeCluster
from tests.support.reviews import PODS, load_pod
from tests.support.waiting import await_that

_NODE_API = "/apis/node.k8s.io/v1/runtimeclasses"
_SCHEDULING_API = "/apis/scheduling.k8s.io/v1/priorityclasses"


def prepare_for_fixture_pods(cluster: KubeCluster) -> None:
    """Make the pods' namespaces, ServiceAccounts, RuntimeClasses and PriorityClasses."""
    accounts: dict[str, set[str]] = {}
    runtime_classes: dict[str, Json] = {}
    for pod in map(load_pod, PODS):
        spec = pod["spec"]
        account = spec.get("serviceAccountName", "default")
        accounts.setdefault(pod["metadata"]["namespace"], {"default"}).add(account)
        if name := spec.get("runtimeClassName"):
            wanted = _runtime_class(name, spec)
            assert runtime_classes.setdefault(name, wanted) == wanted, f"two kinds of {name}"
        if name := spec.get("priorityClassName"):
            _priority_class(cluster, name, spec["priority"])
    for namespace, names in accounts.items():
        cluster.namespace(namespace, service_accounts=sorted(names))
    for runtime_class in runtime_classes.values():
        status, answer, _ = cluster.request("POST", _NODE_API, runtime_class)
        assert status in (201, 409), answer


def _runtime_class(name: str, spec: Json) -> Json:
    """The class whose overhead the pod carries.

    It selects no nodes, though the pod may carry what its class once merged into it: the pods of
    one class were made in different clusters.
    """
    made: Json = {"metadata": {"name": name}, "handler": name}
    if overhead := spec.get("overhead"):
        made["overhead"] = {"podFixed": overhead}
    return made


def _priority_class(cluster: KubeCluster, name: str, value: int) -> None:
    """The API server creates the `system-` classes itself, and refuses further ones."""
    found = cluster.request("GET", f"{_SCHEDULING_API}/{name}").body
    if found.get("code") == 404:
        found = cluster.create(_SCHEDULING_API, {"metadata": {"name": name}, "value": value})
    assert found["value"] == value, f"the priority of {name} is {found['value']}, not {value}"
    pod = {
        "metadata": {"name": "priority", "namespace": "default"},
        "spec": {"priorityClassName": name, "containers": [{"name": "c", "image": "i"}]},
    }

    def is_known() -> bool:
        # The admission plugin reads only its cache.
        answer = cluster.create_pod(pod, dry_run=True)
        return "no PriorityClass with name" not in answer.body.get("message", "")

    await_that(is_known, f"the API server admits pods of PriorityClass {name}")
