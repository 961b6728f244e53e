"""A ServiceAccount that may do what it is given, and podsettle's connection as that account."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.kube.cluster import KubeCluster
from tests.support.waiting import await_that
from webhook.cluster.client import ApiServer

_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def await_grant(cluster: KubeCluster, account: str, asked: dict[str, Any]) -> None:
    """Wait until `namespace:name` may do what is asked: a binding is not in force at once."""
    review = {"spec": {"user": f"system:serviceaccount:{account}", **asked}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    await_that(
        lambda: cluster.request("POST", path, review).body["status"]["allowed"],
        f"{account} has what it was given",
    )


def kubeconfig_of_an_account_with(
    cluster: KubeCluster, namespace: str, rules: list[dict[str, Any]], directory: Path
) -> Path:
    """A kubeconfig of an account that may do what `rules` say in one namespace, and nothing else.

    The namespace is also that of its context.
    """
    token = cluster.token_for("default", namespace)
    name, group = namespace, "rbac.authorization.k8s.io"
    role = {"metadata": {"name": name}, "rules": rules}
    cluster.create(f"{_RBAC}/namespaces/{namespace}/roles", role)
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    cluster.create(f"{_RBAC}/namespaces/{namespace}/rolebindings", binding)
    for rule in rules:
        asked = {"namespace": namespace, "verb": rule["verbs"][0], "group": rule["apiGroups"][0]}
        asked |= {"resource": rule["resources"][0], "name": rule.get("resourceNames", [""])[0]}
        await_grant(cluster, f"{namespace}:default", {"resourceAttributes": asked})
    configuration = json.loads(cluster.kubeconfig.read_text())
    configuration["users"][0]["user"] = {"token": token}
    configuration["contexts"][0]["context"]["namespace"] = namespace
    kubeconfig = directory / f"kubeconfig-{namespace}"
    kubeconfig.write_text(json.dumps(configuration))
    return kubeconfig


@asynccontextmanager
async def connected_as_an_account_with(
    cluster: KubeCluster, namespace: str, rules: list[dict[str, Any]], directory: Path
) -> AsyncIterator[ApiServer]:
    """A connection that may do what `rules` say in one namespace, and nothing else."""
    kubeconfig = kubeconfig_of_an_account_with(cluster, namespace, rules, directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(kubeconfig))
        server = await ApiServer.connect()
    async with server:
        yield server
