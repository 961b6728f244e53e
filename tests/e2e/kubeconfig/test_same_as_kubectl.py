"""The same kubeconfig and environment: kubectl and podsettle send the same, or both refuse."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.support.kubeconfig_oracle import Case, World, credential, document, encoded

pytestmark = pytest.mark.slow

Json = dict[str, Any]
GROUP = "client.authentication.k8s.io"
TOKEN = credential({"token": "p"})
"""A plugin's script that prints a token."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("kubeconfig"))
    (made.directory / "token").write_text("from-file\n")
    (made.directory / "empty").write_text("")
    (made.directory / "lines").write_text("a\nb\n")
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (made.directory / "broken-first.crt").write_bytes(broken + made.ca_pem)
    both = [(made.directory / f"alice.{ending}").read_bytes() for ending in ("key", "crt")]
    (made.directory / "both.pem").write_bytes(b"".join(both))
    key = load_pem_private_key(both[0], None)
    (made.directory / "encrypted.key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    (made.directory / ".netrc").write_text("default login netrc password secret\n")
    with made.running():
        yield made


def two_files(world: World, first: Mapping[str, Any], second: Mapping[str, Any]) -> Case:
    """Two kubeconfigs whose contexts have the same names, and whose servers differ."""
    a, b = document(world.cluster(world.a)), document(world.cluster(world.b), {"token": "t2"})
    return Case([{**a, **first}, {**b, **second}])


def one(cluster: Any, user: Any = None, context: Any = None, **given: Any) -> Case:
    return Case([document(cluster, user, context)], **given)


def with_user(user: Json, world: World) -> Case:
    return one(world.cluster(), user)


def with_fields(fields: Json, world: World) -> Case:
    return one(world.cluster(**fields))


def with_server(url: str, world: World) -> Case:
    server = url.format(a=world.a.port, plain=world.plain.port)
    return one({"server": server} if "{plain}" in url else world.cluster(server=server))


def with_plugin(script: str, fields: Json, world: World) -> Case:
    return one(world.cluster(), world.plugin(script, **fields))


def proxied(world: World, host: str, no_proxy: str = "", **env: str) -> Case:
    """A server that only a proxy can reach, and the exceptions of the environment."""
    url = f"https://{host}:{world.a.port}"
    given = {"HTTPS_PROXY": f"http://127.0.0.1:{world.proxy.port}", "NO_PROXY": no_proxy, **env}
    return one(world.cluster(server=url), env={key: value for key, value in given.items() if value})


def text(world: World) -> str:
    return yaml.safe_dump(document(world.cluster()))


def with_token(scalar: str, world: World) -> Case:
    return Case([text(world).replace("token: t\n", f"token: {scalar}\n")])


def with_groups(scalars: str, world: World) -> Case:
    groups = f"token: t\n    as: jane\n    as-groups: [{scalars}]\n"
    return Case([text(world).replace("token: t\n", groups)])


def through_tls_proxy(fields: Mapping[str, Any], world: World, **env: str) -> Case:
    """A proxy with a certificate of the cluster's CA, and a server behind it."""
    proxy = f"https://u:p@127.0.0.1:{world.tls_proxy.port}"
    url = f"https://a.example:{world.a.port}"
    return one(world.cluster(server=url, **{"proxy-url": proxy}, **fields), env=env)


def plugin_that_kubectl_may_not_run(world: World) -> Case:
    file = world.directory / "kuberc"
    version = "kubectl.config.k8s.io/v1beta1"
    policy = {"apiVersion": version, "kind": "Preference", "credentialPluginPolicy": "DenyAll"}
    file.write_text(yaml.safe_dump(policy))
    return one(world.cluster(), world.plugin(credential({"token": "p"})), env={"KUBERC": str(file)})


def exception(host: str, no_proxy: str, world: World) -> Case:
    """An entry of NO_PROXY, in which PORT is the port of the server.

    Linux refuses TCP connections to multicast addresses at once. Others would end in a timeout.
    """
    return proxied(world, host, no_proxy.replace("PORT", str(world.a.port)))


USERS: dict[str, Json] = {
    "token": {"token": "a b"},
    "token that is a number": {"token": 5},
    "token file": {"tokenFile": "token"},
    "token file beside a token": {"tokenFile": "token", "token": "t"},
    "token that ends with a line": {"token": "t\n"},
    "token file of two lines": {"tokenFile": "lines"},
    "token with a tab and an umlaut": {"token": "a\tä"},
    "token file with a name that no file can have": {"tokenFile": "\0"},
    "certificate with a name that no file can have": {
        "client-certificate": "\0", "client-key": "alice.key"
    },
    "missing token file": {"tokenFile": "none"},
    "missing token file beside a token": {"tokenFile": "none", "token": "t"},
    "empty token file beside a token": {"tokenFile": "empty", "token": "t"},
    "password": {"username": "a", "password": "ä:b"},
    "password and token": {"username": "a", "password": "b", "token": "t"},
    "password and token file": {"username": "a", "password": "b", "tokenFile": "token"},
    "password without a user name, beside a token file": {"password": "b", "tokenFile": "token"},
    "client certificate in files": {"client-certificate": "alice.crt", "client-key": "alice.key"},
    "client certificate and token": {
        "client-certificate": "alice.crt", "client-key": "alice.key", "token": "t"
    },
    "client certificate without a key": {"client-certificate": "alice.crt"},
    "key without a client certificate": {"client-key": "alice.key", "token": "t"},
    "certificate with the key of another": {
        "client-certificate": "alice.crt", "client-key": "bob.key"
    },
    "certificate and key in one file": {"client-certificate": "both.pem", "client-key": "both.pem"},
    "empty certificate file": {
        "client-certificate": "empty", "client-key": "alice.key", "token": "t"
    },
    "encrypted key": {"client-certificate": "alice.crt", "client-key": "encrypted.key"},
    "missing certificate file": {"client-certificate": "none", "client-key": "alice.key"},
    "data that is not base64": {"client-certificate-data": "%", "client-key": "alice.key"},
    "netrc": {"client-certificate": "alice.crt", "client-key": "alice.key"},
    "removed provider": {"auth-provider": {"name": "gcp"}},
    "as": {"token": "t", "as": "jane"},
    "as with everything": {
        "token": "t", "as": "jane", "as-uid": "7", "as-groups": ["g1", "g2"],
        "as-user-extra": {"scopes.example.org/a%b c": ["view", "edit"], "Reason": ["x"]},
    },
    "groups without as": {"token": "t", "as-groups": ["g"]},
    "uid without as": {"token": "t", "as-uid": "g"},
    "extra fields that differ in their case": {
        "token": "t", "as": "jane", "as-user-extra": {"K": ["v"], "k": ["w"]}
    },
    "extra fields whose names are no texts": {
        "token": "t", "as": "jane", "as-user-extra": {5: ["v"], True: ["w"], 1.5: ["x"]}
    },
    "empty group and value": {
        "token": "t", "as": "jane", "as-groups": [""], "as-user-extra": {"k": [""]}
    },
    "nulls among groups and values": {
        "token": "t", "as": "jane", "as-groups": [None, "g"], "as-user-extra": {"k": ["v", None]}
    },
    "as with characters that headers can have": {"token": "t", "as": " a\tb\u00a0\u200bc "},
    "as with a line break": {"token": "t", "as": "a\n"},
    "name with an umlaut": {"token": "t", "as": "jänner"},
}  # fmt: skip
"""Users of a cluster."""
CLUSTERS: dict[str, Json] = {
    "no verification": {"certificate-authority": "", "insecure-skip-tls-verify": True},
    "no verification beside a CA": {"insecure-skip-tls-verify": True},
    "certificate of the server as CA": {"certificate-authority": "server.crt"},
    "another CA": {"certificate-authority": "other-ca.crt"},
    "no CA": {"certificate-authority": ""},
    "CA behind a certificate that cannot be parsed": {"certificate-authority": "broken-first.crt"},
    "missing CA file": {"certificate-authority": "none"},
    "CA file without a certificate": {"certificate-authority": "token"},
    "tls-server-name": {"tls-server-name": "a.example"},
    "tls-server-name that is wrong": {"tls-server-name": "c.example"},
    "proxy of an unknown kind": {"proxy-url": "ftp://127.0.0.1:1"},
    **{
        f"tls-server-name {name}": {
            "certificate-authority": "", "insecure-skip-tls-verify": True, "tls-server-name": name
        }
        for name in ("::1", "[::1]", "A.Example", "a.example.", "a_b.example")
    },
    **{
        f"tls-server-name {name} of the certificate": {"tls-server-name": name}
        for name in ("127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[a.example]")
    },
}  # fmt: skip
"""Fields of a cluster."""
SERVERS = {
    "mapped address of the server": "https://[::ffff:127.0.0.1]:{a}",
    "localhost": "https://localhost:{a}",
    "path of the server": "https://127.0.0.1:{a}/k8s/c-1/",
    "query of the server": "https://127.0.0.1:{a}/k8s/c-1?a=b#c",
    "path with double slashes": "https://127.0.0.1:{a}//k8s//c-1",
    "path with escapes": "https://127.0.0.1:{a}/a%20b/c%2Fd",
    "path with dots": "https://127.0.0.1:{a}/a/../b",
    "path with an umlaut": "https://127.0.0.1:{a}/ä;x=1/a+b",
    "scheme in capitals": "HTTPS://127.0.0.1:{a}",
    "server without a scheme": "127.0.0.1:{plain}",
    "server without a scheme, with a name": "localhost:{plain}",
    "server without a scheme, with a path": "127.0.0.1:{plain}/k8s",
}
"""URLs of servers."""
SCRIPTS: dict[str, str] = {
    "plugin that prints another version": credential({"token": "p"}, f"{GROUP}/v1beta1"),
    "plugin without a status": credential(None),
    "plugin without a token": credential({}),
    "plugin that fails": "echo no >&2; exit 3",
    "plugin that prints no JSON": "echo no",
    "plugin that prints YAML": f"printf 'apiVersion: {GROUP}/v1\\nstatus: {{token: p}}\\n'",
    "plugin that prints JSON with a surrogate pair": credential({"token": "p", "user": "😀"}),
    "plugin that prints a document behind JSON": f"{TOKEN}\necho ---",
    "plugin that prints JSON behind spaces": f"echo ' '; {TOKEN}",
    "plugin that prints a warning first": f"echo warning: old; {TOKEN}",
    "plugin that prints another kind": credential({"token": "p"}, kind="Status"),
    "plugin that prints an empty kind": credential({"token": "p"}, kind=""),
    "plugin that prints nulls": credential(
        {"token": "p", "clientKeyData": None, "expirationTimestamp": None}
    ),
    "plugin that prints a token with a line break": credential({"token": "p\n"}),
    **{
        f"plugin whose token expires {at}": credential({"token": "p", "expirationTimestamp": at})
        for at in (
            "", "2099-01-01", "2099-01-01T00:00:00", "2099-01-01T00:00:00+02:00",
            "2099-01-01T00:00:00.123456789Z", "2001-01-01T00:00:00Z", 4102444800,
        )
    },
}  # fmt: skip
"""Scripts of credential plugins."""
PLUGINS: dict[str, Json] = {
    "plugin": {},
    "plugin with arguments": {
        "args": ["a b", "c"], "env": [{"name": "PLUGIN_VARIABLE", "value": "set"}]
    },
    "plugin with unknown fields of a variable": {
        "env": [{"name": "PLUGIN_VARIABLE", "value": "set", "valueFrom": {"a": 1}}]
    },
    "plugin with a variable without a name": {"env": [{"name": "", "value": "x"}]},
    "plugin that is interactive if it can be": {"interactiveMode": "IfAvailable"},
    "plugin that has to be interactive": {"interactiveMode": "Always"},
    "plugin without an interactiveMode": {"interactiveMode": ""},
    "plugin with an unknown interactiveMode": {"interactiveMode": "Sometimes"},
}  # fmt: skip
"""Fields of a plugin that prints a token."""
CASES: dict[str, Callable[[World], Case]] = {
    **{name: partial(with_user, user) for name, user in USERS.items()},
    **{name: partial(with_fields, fields) for name, fields in CLUSTERS.items()},
    **{name: partial(with_server, server) for name, server in SERVERS.items()},
    **{name: partial(with_plugin, script, {}) for name, script in SCRIPTS.items()},
    **{name: partial(with_plugin, TOKEN, fields) for name, fields in PLUGINS.items()},
    # Several files
    "first current-context wins": lambda w: two_files(w, {}, {}),
    "current-context of the second file": lambda w: two_files(w, {"current-context": ""}, {}),
    "first entry of a name wins whole": lambda w: two_files(
        w, {"users": [{"name": "u", "user": {"token": "first"}}]},
        {"users": [{"name": "u", "user": {"as": "someone"}}]},
    ),
    "cluster of one file, user of another": lambda w: two_files(
        w, {"users": []}, {"clusters": [], "contexts": []}
    ),
    "paths are relative to their own file": lambda w: Case(
        [document(w.cluster(), {"tokenFile": "token"}), document(w.cluster(w.b))]
    ),
    "missing first file": lambda w: one(
        w.cluster(), env={"KUBECONFIG": f"{w.directory}/none::{w.directory}/config-0"}
    ),
    "the same file twice": lambda w: one(
        w.cluster(), env={"KUBECONFIG": f"{w.directory}/config-0:{w.directory}/config-0"}
    ),
    "broken second file": lambda w: Case([document(w.cluster()), "clusters: ["]),
    "name twice in a file": lambda w: Case([{
        **document(w.cluster()),
        "users": [{"name": "u", "user": {"token": "1"}}, {"name": "u", "user": {"token": "2"}}],
    }]),
    "a file without a document first": lambda w: Case(["", "# none\n", document(w.cluster())]),
    "a file with two documents": lambda w: Case([f"{text(w)}---\ncurrent-context: none\n"]),
    "a path through a file": lambda w: one(
        w.cluster(), env={"KUBECONFIG": f"{w.directory}/token/config:{w.directory}/config-0"}
    ),
    "another kind": lambda w: Case([{**document(w.cluster()), "kind": "KubeadmConfig"}]),
    "another apiVersion": lambda w: Case([{**document(w.cluster()), "apiVersion": "v2"}]),
    "neither kind nor apiVersion": lambda w: Case(
        [{**document(w.cluster()), "apiVersion": None, "kind": None}]
    ),
    "empty kind and apiVersion": lambda w: Case(
        [{**document(w.cluster()), "apiVersion": "", "kind": ""}]
    ),
    "home directory without a name": lambda w: Case(
        [{"current-context": "x"}, document(w.cluster(**{"certificate-authority": str(w.ca)}))],
        env={"KUBECONFIG": "", "HOME": ""}, default=True,
    ),
    # Texts
    "CRLF and a byte order mark": lambda w: Case(["\ufeff" + text(w).replace("\n", "\r\n")]),
    "JSON": lambda w: Case([json.dumps(document(w.cluster()), indent="\t")]),
    "key twice": lambda w: Case([text(w) + "current-context: none\ncurrent-context: x\n"]),
    "merge key": lambda w: Case(
        ["common: &common\n  token: t\n" + text(w).replace("token: t", "<<: *common")]
    ),
    **{
        f"token: {scalar}": partial(with_token, scalar)
        for scalar in (
            "1e3", "0o14", "017", "0x1F", "1_000", ".5", "y", "N", "on", "Off", "yes", "TRUE"
        )
    },
    "scalars that are texts": partial(
        with_groups, "2026-11-28, 2026-11-28T10:00:00Z, 12:30, 1:2:3, =, 'y', !!str 5"
    ),
    "name of a context that is a number": lambda w: Case(
        [text(w).replace("context: x\n", "context: 0x1F\n").replace("name: x\n", "name: 0x1F\n")]
    ),
    "three files": lambda w: Case(
        [{"current-context": "x"}, document(w.cluster(w.b)), document(w.cluster(w.a))]
    ),
    # Contexts
    "context flag": lambda w: Case([{
        **document(w.cluster()),
        "contexts": [
            {"name": "x", "context": {"cluster": "c", "user": "u"}},
            {"name": "other", "context": {"cluster": "c", "user": "u", "namespace": "other"}},
        ],
    }], context="other"),
    "context that does not exist": lambda w: Case([document(w.cluster())], context="none"),
    "current-context that does not exist": lambda w: Case(
        [{**document(w.cluster()), "current-context": "none"}]
    ),
    "namespace of the context": lambda w: one(w.cluster(), context={"namespace": "ci"}),
    "namespace that is a number": lambda w: one(w.cluster(), context={"namespace": 5}),
    **{
        f"namespace {name}": partial(lambda name, w: one(
            w.cluster(), context={"namespace": name}
        ), name)
        for name in (".", "..", "../ci", "a/b", "a%2Fb", "kube-system/pods")
    },
    "nulls": lambda w: one(w.cluster(**{"proxy-url": None}), {"token": "t", "exec": None}),
    "null beside each entry": lambda w: Case([{
        key: [None, *value] if isinstance(value, list) else value
        for key, value in document(w.cluster()).items()
    }]),
    "unknown fields": lambda w: one(w.cluster(new=1), {"token": "t", "new": []}),
    # Users
    "client certificate as data": lambda w: one(w.cluster(), {
        "client-certificate-data": w.certificate,
        "client-key-data": w.key,
    }),
    "certificate as data, key in a file": lambda w: one(w.cluster(), {
        "client-certificate-data": w.certificate,
        "client-key": "alice.key",
    }),
    "certificate in a file and as data": lambda w: one(w.cluster(), {
        "client-certificate": "alice.crt",
        "client-certificate-data": w.certificate,
        "client-key": "alice.key",
    }),
    "base64 in several lines": lambda w: one(w.cluster(**{
        "certificate-authority": "",
        "certificate-authority-data": encoded(w.ca_pem)[:40] + "\r\n" + encoded(w.ca_pem)[40:],
    })),
    # Impersonation
    "as flag": lambda w: Case([document(w.cluster())], user="flag", groups=("g1", "g2")),
    "as flag over as": lambda w: Case([document(w.cluster(), {
        "token": "t", "as": "jane", "as-groups": ["g"], "as-user-extra": {"k": ["v"]}
    })], user="flag"),
    "groups by flag over groups": lambda w: Case([document(w.cluster(), {
        "token": "t", "as": "jane", "as-groups": ["g"], "as-uid": "7"
    })], user="flag", groups=("h",)),
    "groups by flag beside as": lambda w: Case(
        [document(w.cluster(), {"token": "t", "as": "jane"})], groups=("h",)
    ),
    "groups by flag without as": lambda w: one(w.cluster(), groups=("g",)),
    # Servers and TLS
    "no verification beside CA data": lambda w: one(w.cluster(**{
        "certificate-authority": "", "certificate-authority-data": encoded(w.ca_pem),
        "insecure-skip-tls-verify": True,
    })),
    "CA that another CA issued": lambda w: one(
        w.cluster(w.intermediate, **{"certificate-authority": "intermediate.crt"})
    ),
    "CA of the system": lambda w: one(
        w.cluster(**{"certificate-authority": ""}), env={"SSL_CERT_FILE": str(w.ca)}
    ),
    "empty CA file": lambda w: one(
        w.cluster(**{"certificate-authority": "empty"}), env={"SSL_CERT_FILE": str(w.ca)}
    ),
    "CA in a file and as data": lambda w: one(
        w.cluster(**{"certificate-authority-data": encoded(w.ca_pem)})
    ),
    "CA data with a comment": lambda w: one(w.cluster(**{
        "certificate-authority": "",
        "certificate-authority-data": encoded("# Zertifikat für a\n".encode() + w.ca_pem),
    })),
    "server with a dot at its end behind a proxy": lambda w: proxied(w, "a.example."),
    "server without TLS": lambda w: one(
        {"server": f"http://127.0.0.1:{w.plain.port}"}, {"token": "t", "as": "jane"}
    ),
    # Proxies
    "proxy of the cluster": lambda w: one(
        w.cluster(**{"proxy-url": f"http://127.0.0.1:{w.second_proxy.port}"})
    ),
    "proxy of the cluster in spite of NO_PROXY": lambda w: Case(
        [document(w.cluster(**{"proxy-url": f"http://u:p%40@127.0.0.1:{w.second_proxy.port}"}))],
        env={"NO_PROXY": "*", "HTTPS_PROXY": f"http://127.0.0.1:{w.proxy.port}"},
    ),
    "proxy of the cluster with a password in UTF-8, and a colon": lambda w: one(
        w.cluster(**{"proxy-url": f"http://a%3A%C3%A4:%C3%B6@127.0.0.1:{w.second_proxy.port}"})
    ),
    "proxy with a password for a server without TLS": lambda w: one({
        "server": "http://plain.example",
        "proxy-url": f"http://%C3%A4:%C3%B6@127.0.0.1:{w.second_proxy.port}",
    }),
    **{
        f"proxy with TLS and {fields}": partial(through_tls_proxy, fields)
        for fields in (
            {}, {"certificate-authority": "other-ca.crt"}, {"tls-server-name": "api.b.example"},
            {"certificate-authority": "", "insecure-skip-tls-verify": True},
        )
    },
    "proxy with TLS that the CAs of the system have issued": lambda w: through_tls_proxy(
        {"certificate-authority": "other-ca.crt"}, w, SSL_CERT_FILE=str(w.ca)
    ),
    "server on 127.0.0.1": lambda w: proxied(w, "127.0.0.1"),
    "server on localhost": lambda w: proxied(w, "localhost"),
    "server behind a proxy": lambda w: proxied(w, "a.example"),
    "proxy without a scheme": lambda w: proxied(
        w, "a.example", HTTPS_PROXY=f"127.0.0.1:{w.proxy.port}"
    ),
    "proxy in small letters": lambda w: proxied(
        w, "a.example", HTTPS_PROXY="", https_proxy=f"http://127.0.0.1:{w.proxy.port}"
    ),
    "both spellings": lambda w: proxied(
        w, "a.example", https_proxy=f"http://127.0.0.1:{w.second_proxy.port}"
    ),
    "proxy for http only": lambda w: one(
        w.cluster(), env={"HTTP_PROXY": f"http://127.0.0.1:{w.proxy.port}"}
    ),
    "server without TLS behind a proxy": lambda w: Case(
        [document({"server": "http://plain.example"})],
        env={"HTTP_PROXY": f"http://127.0.0.1:{w.proxy.port}"},
    ),
    "all_proxy": lambda w: one(w.cluster(), env={"ALL_PROXY": f"http://127.0.0.1:{w.proxy.port}"}),
    **{
        f"NO_PROXY={no_proxy} for {host}": partial(exception, host, no_proxy)
        for host, no_proxy in (
            ("a.example", "example"), ("a.example", ".example"), ("a.example", "*.example"),
            ("a.example.", "a.example"), ("a.example", "A.Example "), ("a.example", "a.example:"),
            ("a.example", "a.example:PORT"), ("a.example", "*.example:PORT"),
            ("a.example", "*"), ("a.example", "x, *"), ("api.b.example", "b.example"),
            ("127.0.0.2", "127.0.0.0/8"), ("224.0.2.7", "224.0.2.0/24"), ("224.0.2.7", "224.0.2.7"),
            ("224.0.2.7", "224.0.2.9/24"), ("224.0.2.7", "[224.0.2.7]:PORT"),
            ("[ff0e:db8::7]", "ff0e:db8::/32"), ("[ff0e:db8::7]", "FF0E:DB8:0::7"),
            ("[ff0e:db8::7]", "[ff0e:db8::7]:PORT"),
            # None of these entries names the server.
            ("a.example", "b.example,.a.example,a.example:1,a.example:0PORT,*a.example,10.0.0.0/8"),
            ("api.b.example", "xb.example"),
            ("224.0.2.7", "224.0.2.7:1,224.0.2.7:0PORT,224.0.2,.2.7,[224.0.2.7],224.0.3.0/24,::/0"),
            ("224.0.2.7", "224.0.2.0/255.255.255.0,224.0.2.0/24:PORT,300.0.0.0/8,/8,:1"),
            ("[ff0e:db8::7]", "[ff0e:db8::7],ff0e:db8::7:PORT,[ff0e:db8::]/32,[ff0e:db8::7]:1"),
        )
    },
    # Credential plugins
    "plugin with nulls among its arguments": lambda w: one(w.cluster(), w.plugin(
        f"[ $# = 3 -a x$2 = x ] && {TOKEN}", args=["a", None, "b"]
    )),
    "plugin beside a null extension": lambda w: one(
        w.cluster(extensions=[None]), w.plugin(TOKEN, provideClusterInfo=True)
    ),
    "plugin of v1beta1": lambda w: one(w.cluster(), w.plugin(
        credential({"token": "p"}, f"{GROUP}/v1beta1"), version=f"{GROUP}/v1beta1",
        interactiveMode="",
    )),
    "plugin of v1alpha1": lambda w: one(w.cluster(), w.plugin(
        credential({"token": "p"}, f"{GROUP}/v1alpha1"), version=f"{GROUP}/v1alpha1"
    )),
    "plugin beside the kubeconfig": lambda w: one(w.cluster(), w.plugin(TOKEN, command="./plugin")),
    "plugin in the path": lambda w: one(w.cluster(), w.plugin(
        TOKEN, command="plugin"
    ), env={"PATH": f"{w.directory}:/usr/bin:/bin"}),
    "plugin in the path of the plugin": lambda w: one(w.cluster(), w.plugin(
        TOKEN, command="plugin", env=[{"name": "PATH", "value": f"{w.directory}:/usr/bin:/bin"}]
    )),
    "plugin that is not in the path of the plugin": lambda w: one(w.cluster(), w.plugin(
        TOKEN, command="plugin", env=[{"name": "PATH", "value": "/usr/bin:/bin"}]
    ), env={"PATH": f"{w.directory}:/usr/bin:/bin"}),
    "plugin in a relative path": lambda w: one(w.cluster(), w.plugin(
        TOKEN, command="plugin"
    ), env={"PATH": f"{os.path.relpath(w.directory)}:.:/usr/bin:/bin"}),
    "plugin beside a password without a user name": lambda w: one(
        w.cluster(), {**w.plugin(TOKEN), "password": "b"}
    ),
    "plugin without an apiVersion for a server without TLS": lambda w: one(
        {"server": f"http://127.0.0.1:{w.plain.port}"}, w.plugin("", version="")
    ),
    "plugin that is missing": lambda w: one(w.cluster(), w.plugin(TOKEN, command="./none")),
    "plugin that is told the cluster": lambda w: one(
        w.cluster(**{
            "tls-server-name": "a.example",
            "extensions": [
                {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}},
                {"name": "other", "extension": {"a": 1}},
            ],
        }),
        w.plugin(TOKEN, provideClusterInfo=True),
    ),
    "plugin that is told the cluster with a proxy": lambda w: one(
        w.cluster(**{"proxy-url": f"http://127.0.0.1:{w.proxy.port}", "disable-compression": True}),
        w.plugin(TOKEN, provideClusterInfo=True),
    ),
    "plugin that is told the insecure cluster": lambda w: one(
        w.cluster(**{"certificate-authority": "", "insecure-skip-tls-verify": True}),
        w.plugin(TOKEN, provideClusterInfo=True),
    ),
    "plugin with a client certificate": lambda w: one(w.cluster(), w.plugin(credential({
        "clientCertificateData": w.client_pem, "clientKeyData": w.key_pem
    }))),
    "plugin with a certificate and a token": lambda w: one(w.cluster(), w.plugin(credential({
        "token": "p", "clientCertificateData": w.client_pem, "clientKeyData": w.key_pem
    }))),
    "plugin with a certificate without a key": lambda w: one(w.cluster(), w.plugin(credential({
        "token": "p", "clientCertificateData": w.client_pem,
    }))),
    "plugin beside a token": lambda w: one(w.cluster(), {**w.plugin(TOKEN), "token": "t"}),
    "plugin beside a client certificate": lambda w: one(w.cluster(), {
        **w.plugin(TOKEN), "client-certificate": "alice.crt", "client-key": "alice.key"
    }),
    "plugin without a command": lambda w: one(w.cluster(), w.plugin("", command="")),
    "plugin beside a provider": lambda w: one(
        w.cluster(), {**w.plugin(TOKEN), "auth-provider": {"name": "oidc"}}
    ),
    "plugin for a server without TLS": lambda w: one(
        {"server": f"http://127.0.0.1:{w.plain.port}"}, w.plugin(TOKEN)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_podsettle_does_what_kubectl_does(world: World, name: str) -> None:
    kubectl, podsettle = world.observe(CASES[name](world))
    assert podsettle.compared == kubectl.compared, (kubectl.message, podsettle.message)
    assert kubectl.seen or kubectl.refused or kubectl.proxied


class Difference(NamedTuple):
    """A case in which podsettle differs on purpose."""

    case: Callable[[World], Case]
    kubectl: str
    """A part of kubectl's error. Empty if it succeeds."""
    podsettle: str
    """A part of podsettle's error. Empty if it succeeds."""


DIFFERENCES = {
    # kubectl would contact localhost:8080, or the cluster around its pod.
    "no current-context": Difference(
        lambda w: Case([{**document(w.cluster()), "current-context": ""}]),
        "localhost:8080", "current-context: it is empty; it has: x",
    ),
    "missing cluster": Difference(
        lambda w: Case([{**document(w.cluster()), "clusters": []}]),
        "localhost:8080", "contexts[x].cluster: there is no cluster 'c'",
    ),
    "only missing files": Difference(
        lambda w: Case([], env={"KUBECONFIG": f"{w.directory}/none"}),
        "localhost:8080", "/none (KUBECONFIG) does not exist",
    ),
    # kubectl asks for a user name.
    "missing user": Difference(
        lambda w: Case([{**document(w.cluster()), "users": []}]),
        "EOF", "contexts[x].user: there is no user 'u'",
    ),
    "no credentials": Difference(lambda w: one(w.cluster(), {}), "EOF", ""),
    # kubectl leaves the answer to the API server.
    "namespace with capitals": Difference(
        lambda w: one(w.cluster(), context={"namespace": "CI"}),
        "", "the namespace 'CI' is not a valid name",
    ),
    "user and password in the server's URL": Difference(
        lambda w: one(w.cluster(server=f"https://user:secret@127.0.0.1:{w.a.port}")),
        "", "clusters[c].server: it has a user; only username and password are supported",
    ),
    "socks5": Difference(
        lambda w: one(w.cluster(**{"proxy-url": "socks5://127.0.0.1:1"})),
        "connection refused", "clusters[c].proxy-url: ",
    ),
    # kubectl prints a part of the kubeconfig, and contacts localhost:8080 if it is a short one.
    "kubeconfig in KUBECONFIG": Difference(
        lambda w: Case([], env={"KUBECONFIG": text(w)}),
        "localhost:8080", "no cluster found: KUBECONFIG has to name files, and seems to be ",
    ),
    "kubeconfig as base64 in KUBECONFIG": Difference(
        lambda w: Case([], env={"KUBECONFIG": encoded(text(w).encode())}),
        "file name too long", "no cluster found: KUBECONFIG has to name files, and seems to be ",
    ),
    # kubectl checks all entries.
    "fault in a user of another context": Difference(
        lambda w: Case([{
            **document(w.cluster()),
            "users": [
                {"name": "u", "user": {"token": "t"}},
                {"name": "v", "user": {"client-key-data": "%"}},
            ],
        }]),
        "illegal base64", "",
    ),
    # kubectl expects this name in the proxy's certificate too (kubernetes/kubernetes#104779).
    "proxy with TLS beside tls-server-name": Difference(
        lambda w: through_tls_proxy({"tls-server-name": "a.example"}, w),
        "proxyconnect tcp: tls: failed to verify certificate", "",
    ),
    # A kuberc file is for kubectl.
    "plugin that a kuberc file forbids": Difference(
        plugin_that_kubectl_may_not_run, "policy set to", ""
    ),
    # kubectl renews an OIDC token. podsettle uses what kubectl stored.
    "expired OIDC token": Difference(
        lambda w: one(w.cluster(), {"auth-provider": {"name": "oidc", "config": {
            "id-token": "e30.eyJleHAiOjF9.", "client-id": "c", "idp-issuer-url": "https://[::1]:1",
        }}}),
        "refresh", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENCES)
def test_difference_on_purpose_is_as_documented(world: World, name: str) -> None:
    case, kubectl_error, podsettle_error = DIFFERENCES[name]
    kubectl, podsettle = world.observe(case(world))
    assert kubectl_error in kubectl.message
    assert bool(kubectl_error) == bool(kubectl.message)
    assert podsettle_error in podsettle.message
    assert bool(podsettle_error) == bool(podsettle.message)
