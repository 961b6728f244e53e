"""Generated kubeconfigs: kubectl and podsettle send the same, or both refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.kubeconfig_oracle import Case, World, credential, encoded

pytestmark = pytest.mark.slow

EXAMPLES = 250
NAMES = st.sampled_from(["one", "two"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("kubeconfig"))
    (made.directory / "token").write_text("from-file\n")
    made.plugin(credential({"token": "from-plugin"}))
    with made.running():
        yield made


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Documents with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def clusters(world: World) -> st.SearchStrategy[dict[str, Any]]:
    hosts = [f"https://{host}:{server.port}" for server in (world.a, world.b)
             for host in ("127.0.0.1", "localhost", "a.example")]  # fmt: skip
    servers = st.sampled_from(
        [*hosts, f"http://127.0.0.1:{world.plain.port}", f"{hosts[0]}/prefix/"]
    )
    trust = st.sampled_from([
        {"certificate-authority": "ca.crt"},
        {"certificate-authority": str(world.ca)},
        {"certificate-authority-data": encoded(world.ca_pem)},
        {"insecure-skip-tls-verify": True},
        {"certificate-authority": "other-ca.crt"},
        {"certificate-authority": "ca.crt", "insecure-skip-tls-verify": True},
        {},
    ])  # fmt: skip
    more = some(**{
        "tls-server-name": st.sampled_from(["a.example", "c.example"]),
        "proxy-url": st.just(f"http://127.0.0.1:{world.proxy.port}"),
    })  # fmt: skip
    return st.builds(lambda s, t, m: {"server": s, **t, **m}, servers, trust, more)


def users(world: World) -> st.SearchStrategy[dict[str, Any]]:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "./plugin", "provideClusterInfo": True,
    }  # fmt: skip
    ways: list[dict[str, Any]] = [
        {"token": "t1"}, {"token": "t2"}, {"tokenFile": "token"}, {"tokenFile": "none"},
        {"username": "a", "password": "b"}, {"exec": plugin},
        {"client-certificate": "alice.crt", "client-key": "alice.key"},
        {"client-certificate-data": encoded(world.client.cert_chain_pems[0].bytes()),
         "client-key": "alice.key"},
    ]  # fmt: skip
    merged = st.lists(st.sampled_from(ways), min_size=1, max_size=2).map(
        lambda parts: {key: value for part in parts for key, value in part.items()}
    )
    impersonation = some(**{
        "as": st.just("jane"), "as-uid": st.just("7"), "as-groups": st.just(["g", "h"]),
        "as-user-extra": st.just({"a/b": ["c"]}),
    })  # fmt: skip
    return st.builds(lambda u, i: {**u, **i}, merged, st.one_of(st.just({}), impersonation))


@st.composite
def cases(draw: st.DrawFn, world: World) -> Case:
    def named(kind: str, values: st.SearchStrategy[dict[str, Any]]) -> list[dict[str, Any]]:
        names = draw(st.lists(NAMES, max_size=2, unique=draw(st.integers(0, 9)) > 0))
        return [{"name": name, kind: draw(values)} for name in names]

    contexts = st.fixed_dictionaries(
        {"cluster": NAMES, "user": NAMES}, optional={"namespace": st.sampled_from(["ci", "dev"])}
    )
    files = [
        {
            "clusters": named("cluster", clusters(world)),
            "users": named("user", users(world)),
            "contexts": named("context", contexts),
            **draw(some(**{"current-context": st.sampled_from(["one", "two", ""])})),
        }
        for _ in range(draw(st.integers(1, 3)))
    ]
    env = draw(some(
        HTTPS_PROXY=st.just(f"http://127.0.0.1:{world.second_proxy.port}"),
        no_proxy=st.sampled_from([".example", "a.example", "*", "127.0.0.0/8"]),
    ))  # fmt: skip
    flag = draw(st.sampled_from([None, None, "one", "two"]))
    user, groups = draw(st.sampled_from([(None, ()), (None, ()), ("flag", ()), ("flag", ("f",))]))
    return Case(files, env, flag, user, groups)


def names_nothing(case: Case) -> bool:
    """Whether the chosen context, or what it names, is missing: a difference on purpose."""
    merged: dict[str, dict[str, Any]] = {"cluster": {}, "user": {}, "context": {}}
    for document in case.files:
        for kind, found in merged.items():
            for each in document[f"{kind}s"]:
                found.setdefault(each["name"], each[kind])
    current = [document.get("current-context") for document in case.files]
    context = merged["context"].get(case.context or next(filter(None, current), ""))
    return context is None or any(context[kind] not in merged[kind] for kind in ("cluster", "user"))


def test_podsettle_does_what_kubectl_does(world: World) -> None:
    compared = {"sent": 0, "refused": 0}

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(case=cases(world))
    def compare(case: Case) -> None:
        assume(not names_nothing(case))
        kubectl, podsettle = world.observe(case)
        assert podsettle.compared == kubectl.compared, (kubectl.message, podsettle.message)
        compared["sent" if kubectl.seen else "refused"] += 1

    compare()
    assert min(compared.values()) > EXAMPLES // 10, compared
