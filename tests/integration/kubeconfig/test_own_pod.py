"""Commands in a pod: kubectl's default namespace, and impersonation by the service account.

No test can put files where kubectl looks for them, so kubectl 1.37.2 was compared by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

from tests.support.kubeconfig_oracle import World, document
from tests.support.process import free_port
from webhook.cluster import own_pod, service_account
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import NoClusterError
from webhook.kubeconfig.access import Impersonation


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """This process is in a pod of the namespace `ci` of cluster A, and has no kubeconfig."""
    made = World(tmp_path)
    for name, content in (("token", "own"), ("namespace", "ci\n")):
        (tmp_path / name).write_text(content)
    load = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        str(tmp_path / "token"), str(tmp_path / "ca.crt")
    ).load_and_set
    monkeypatch.setattr(service_account, "load_incluster_config", load)
    for module in (own_pod, service_account):
        monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(made.a.port))
    monkeypatch.setenv("HOME", str(tmp_path))
    # It is for registries, and NO_PROXY need not name the API server.
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free_port()}")
    for name in ("KUBECONFIG", "POD_NAMESPACE", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with made.running():
        yield made


@pytest.mark.parametrize(
    ("files", "pod_namespace", "expected"),
    [
        ({}, "", "ci"),
        ({}, "of-the-variable", "of-the-variable"),
        ({"namespace": ""}, "", "default"),
        ({"namespace": None}, "", "default"),
        ({"namespace": None}, "of-the-variable", "of-the-variable"),
        # client-go then does not look for the pod's cluster.
        ({"token": None}, "of-the-variable", "default"),
    ],
)
@pytest.mark.parametrize("in_context", ["", "of-the-context"])
async def test_namespace_of_a_kubeconfig_without_one_is_that_of_the_pod(
    world: World,
    files: dict[str, str | None],
    pod_namespace: str,
    expected: str,
    in_context: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kubeconfig = world.directory / "config"
    context = {"namespace": in_context} if in_context else {}
    kubeconfig.write_text(yaml.safe_dump(document(world.cluster(world.b), None, context)))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("POD_NAMESPACE", pod_namespace)
    for name, content in files.items():
        (world.directory / name).write_text(content or "")
        if content is None:
            (world.directory / name).unlink()
    async with await ApiServer.connect() as server:
        assert server.url.endswith(str(world.b.port))
        assert server.namespace == (in_context or expected)


async def test_service_account_impersonates_and_uses_no_proxy(world: World) -> None:
    async with await ApiServer.connect(impersonation=Impersonation("jane", ("g",))) as server:
        assert server.namespace == "ci"
        await server.request("GET", "/a")
    impersonated = ("impersonate-group", "g"), ("impersonate-user", "jane")
    assert [(seen.authorization, seen.impersonation) for seen in world.seen] == [
        ("Bearer own", impersonated)
    ]


@pytest.mark.parametrize(
    ("user", "groups", "pod_namespace", "cause"),
    [
        (None, ("g",), "", "no user is named"),
        ("a\n", (), "", "characters that no header can have"),
        (None, (), "../ci", "the namespace '../ci' is not a valid name"),
    ],
)
async def test_name_that_no_request_can_have_is_an_error(
    world: World,
    user: str | None,
    groups: tuple[str, ...],
    pod_namespace: str,
    cause: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", pod_namespace)
    with pytest.raises(NoClusterError, match=cause):
        await ApiServer.connect(impersonation=Impersonation(user, groups))
    assert world.seen == []
