"""Generated kubeconfigs: kubectl and podsettle send the same, or both refuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.kubeconfig_oracle import Case, World, credential, encoded
from tests.support.long_forms import IS_LONG

pytestmark = pytest.mark.slow

EXAMPLES = 100 if IS_LONG else 50
NAMES = st.sampled_from(["one", "two"])
# The ways to write a document.
TEXTS: list[Callable[[Any], str]] = [
    yaml.safe_dump,
    json.dumps,
    lambda document: json.dumps(document, indent="\t"),
    lambda document: "\ufeff---\n" + yaml.safe_dump(document).replace("\n", "\r\n"),
    lambda document: yaml.safe_dump(document, default_flow_style=True) + "---\n{",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("kubeconfig"))
    (made.directory / "token").write_text("from-file\n")
    (made.directory / "empty").write_text("\n")
    made.plugin(credential({"token": "from-plugin"}))
    made.plugin("exit 1", "failing")
    made.plugin(credential({
        "clientCertificateData": made.client_pem, "clientKeyData": made.key_pem
    }), "certificate")  # fmt: skip
    with made.running():
        yield made


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Documents with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def clusters(world: World) -> st.SearchStrategy[dict[str, Any]]:
    hosts = [f"https://{host}:{server.port}" for server in (world.a, world.b)
             for host in ("127.0.0.1", "localhost", "a.example")]  # fmt: skip
    servers = st.sampled_from([
        *hosts, f"https://127.0.0.1:{world.intermediate.port}", f"{hosts[0]}/prefix/",
        f"http://127.0.0.1:{world.plain.port}", f"127.0.0.1:{world.plain.port}",
        f"https://a.example.:{world.a.port}", f"https://[ff0e:db8::7]:{world.a.port}",
    ])  # fmt: skip
    trust = st.sampled_from([
        {"certificate-authority": "ca.crt"},
        {"certificate-authority": str(world.ca)},
        {"certificate-authority-data": encoded(world.ca_pem)},
        {"insecure-skip-tls-verify": True},
        {"certificate-authority": "other-ca.crt"}, {"certificate-authority": "intermediate.crt"},
        {"certificate-authority": "empty"}, {"certificate-authority": "server.crt"},
        {"certificate-authority": "ca.crt", "insecure-skip-tls-verify": True},
        {},
    ])  # fmt: skip
    more = some(**{
        "tls-server-name": st.sampled_from(["a.example", "c.example"]),
        "proxy-url": st.sampled_from([
            f"http://127.0.0.1:{world.proxy.port}", f"http://u:p@127.0.0.1:{world.proxy.port}"
        ]),
        "extensions": st.just([
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}},
            {"name": "minikube", "extension": {"last-update": "2026-11-28"}},
        ]),
    })  # fmt: skip
    return st.builds(lambda s, t, m: {"server": s, **t, **m}, servers, trust, more)


def users(world: World) -> st.SearchStrategy[dict[str, Any]]:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "./plugin", "provideClusterInfo": True,
    }  # fmt: skip
    ways: list[dict[str, Any]] = [
        {"token": "t1"}, {"token": "t2"}, {"tokenFile": "token"}, {"tokenFile": "none"},
        {"username": "a", "password": "b"}, {"password": "b"}, {"token": "t\n"},
        {"tokenFile": "empty"}, {"exec": plugin}, {"exec": {**plugin, "command": "plugin"}},
        {"exec": {**plugin, "command": "./failing"}}, {"exec": {**plugin, "command": "none"}},
        {"exec": {**plugin, "command": "./certificate", "provideClusterInfo": False}},
        {"client-certificate": "alice.crt", "client-key": "alice.key"},
        {"client-certificate-data": world.certificate, "client-key": "alice.key"},
    ]  # fmt: skip
    merged = st.lists(st.sampled_from(ways), min_size=1, max_size=2).map(
        lambda parts: {key: value for part in parts for key, value in part.items()}
    )
    impersonation = some(**{
        "as": st.just("jane"), "as-uid": st.just("7"), "as-groups": st.just(["g", "h"]),
        "as-user-extra": st.just({"a/b": ["c"]}),
    })  # fmt: skip
    return st.builds(lambda u, i: {**u, **i}, merged, st.one_of(st.just({}), impersonation))


@dataclass
class GeneratedCase(Case):
    """A case with the documents that its files have."""

    documents: Sequence[Any] = ()


@st.composite
def cases(draw: st.DrawFn, world: World) -> GeneratedCase:
    def named(kind: str, values: st.SearchStrategy[dict[str, Any]]) -> list[dict[str, Any]]:
        names = draw(st.lists(NAMES, max_size=2, unique=draw(st.integers(0, 9)) > 0))
        return [{"name": name, kind: draw(values)} for name in names]

    contexts = st.fixed_dictionaries(
        {"cluster": NAMES, "user": NAMES},
        optional={"namespace": st.sampled_from(["ci", "2026-11-28", "0x1"])},
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
        no_proxy=st.sampled_from([".example", "a.example", "*", "127.0.0.0/8", "ff0e:db8::/32"]),
        SSL_CERT_FILE=st.just(str(world.ca)),
        PATH=st.just(f"{world.directory}:/usr/bin:/bin"),
        KUBECONFIG=st.just("::config-0:empty:./config-0:none:config-1"),
    ))  # fmt: skip
    flag = draw(st.sampled_from([None, None, "one", "two"]))
    user, groups = draw(st.sampled_from([(None, ()), (None, ()), ("flag", ()), ("flag", ("f",))]))
    texts = [draw(st.sampled_from(TEXTS))(document) for document in files]
    return GeneratedCase(texts, env, flag, user, groups, documents=files)


def differs_on_purpose(case: GeneratedCase) -> bool:
    """Whether the chosen context, or what it names, is missing, or the user has no credentials."""
    merged: dict[str, dict[str, Any]] = {"cluster": {}, "user": {}, "context": {}}
    # KUBECONFIG has two files.
    documents = case.documents[:2] if "KUBECONFIG" in case.env else case.documents
    for document in documents:
        for kind, found in merged.items():
            for each in document[f"{kind}s"]:
                found.setdefault(each["name"], each[kind])
    current = [document.get("current-context") for document in documents]
    context = merged["context"].get(case.context or next(filter(None, current), ""))
    if context is None or any(context[kind] not in merged[kind] for kind in ("cluster", "user")):
        return True
    user = {**merged["user"][context["user"]], "password": ""}
    return not any(value for key, value in user.items() if not key.startswith("as"))


def test_podsettle_does_what_kubectl_does(world: World) -> None:
    compared = {"sent": 0, "refused": 0}

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(case=cases(world))
    def compare(case: GeneratedCase) -> None:
        assume(not differs_on_purpose(case))
        kubectl, podsettle = world.observe(case)
        assert podsettle.compared == kubectl.compared, (kubectl.message, podsettle.message)
        compared["sent" if kubectl.seen else "refused"] += 1

    compare()
    assert min(compared.values()) > EXAMPLES // 10, compared
