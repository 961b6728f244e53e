"""A ServiceAccount that may do what it is given, and podsettle's connection as that account."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.support.kube.cluster import KubeCluster
from tests.support.waiting import await_that
from webhook.cluster.client import ApiServer

_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def await_grant(cluster: KubeCluster, account: str, asked: dict[str, Any]) -> None:
    """Wait until `namespace:name` may do what is asked: a binding is not in force at once."""
    user = f"system:serviceaccount:{account}"
    await_that(lambda: is_allowed(cluster, user, asked), f"{account} has what it was given")


def is_allowed(cluster: KubeCluster, user: str, asked: dict[str, Any]) -> bool:
    """Return whether RBAC allows a user what is asked."""
    review = {"spec": {"user": user, **asked}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(cluster.create(path, review)["status"]["allowed"])


def grant(
    cluster: KubeCluster, account: str, rules: list[dict[str, Any]], within: str | None = None
) -> None:
    """Let `namespace:name` do what rules say, in one namespace or everywhere, and await that."""
    namespace, _, subject = account.partition(":")
    kind, path = "ClusterRole", f"{_RBAC}/cluster"
    if within:
        kind, path = "Role", f"{_RBAC}/namespaces/{within}/"
    metadata = {"name": account.replace(":", "-")}
    cluster.create(f"{path}roles", {"metadata": metadata, "rules": rules})
    binding = {
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, **metadata},
        "subjects": [{"kind": "ServiceAccount", "name": subject, "namespace": namespace}],
    }
    cluster.create(f"{path}rolebindings", binding)
    for rule in rules:
        asked: dict[str, Any] = {"verb": rule["verbs"][0]}
        if "nonResourceURLs" in rule:
            asked |= {"path": rule["nonResourceURLs"][0]}
            await_grant(cluster, account, {"nonResourceAttributes": asked})
        else:
            asked |= {"group": rule["apiGroups"][0], "resource": rule["resources"][0]}
            asked |= {"name": rule.get("resourceNames", [""])[0], "namespace": within or ""}
            await_grant(cluster, account, {"resourceAttributes": asked})


def kubeconfig_of_account(
    cluster: KubeCluster, account: str, directory: Path, namespace: str = ""
) -> Path:
    """Write a kubeconfig of `namespace:name`, perhaps with a namespace in its context."""
    own, _, name = account.partition(":")
    user = {"token": cluster.token_for(name, own)}
    return cluster.write_kubeconfig(
        directory / f"kubeconfig-{own}-{name}", user, namespace=namespace
    )


def signed_token(cluster: KubeCluster, claims: dict[str, Any]) -> str:
    """Return a JSON Web Token, by the key that the API server uses for ServiceAccounts."""
    key = load_pem_private_key((cluster.directory / "service-accounts.key").read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    parts = ({"alg": "ES256", "typ": "JWT"}, claims)
    content = ".".join(_base64(json.dumps(part).encode()) for part in parts)
    numbers = decode_dss_signature(key.sign(content.encode(), ECDSA(SHA256())))
    return f"{content}.{_base64(b''.join(number.to_bytes(32, 'big') for number in numbers))}"


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def kubeconfig_of_an_account_with(
    cluster: KubeCluster, namespace: str, rules: list[dict[str, Any]], directory: Path
) -> Path:
    """A kubeconfig of an account that may do what `rules` say in one namespace, and nothing else.

    The namespace is also that of its context.
    """
    account = f"{namespace}:default"
    grant(cluster, account, rules, within=namespace)
    return kubeconfig_of_account(cluster, account, directory, namespace)


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
