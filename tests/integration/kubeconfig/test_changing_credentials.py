"""Credentials and CAs that change while podsettle runs, and plugins that do not answer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from tests.support.kubeconfig_oracle import World, credential, document
from tests.support.process import PODSETTLE, is_running
from tests.support.waiting import TIMEOUT_SECONDS, eventually
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, NoClusterError, Unreachable
from webhook.cluster.watch import WatchLimits
from webhook.kubeconfig import credentials, exec_plugin

HOUR = timedelta(hours=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.running():
        yield made


async def connect(world: World, user: dict[str, Any], **cluster: Any) -> ApiServer:
    path = world.directory / "config"
    path.write_text(yaml.safe_dump(document(world.cluster(**cluster), user)))
    return await ApiServer.connect(kubeconfig=str(path))


def tokens(world: World) -> list[str]:
    return [seen.authorization.removeprefix("Bearer ") for seen in world.seen]


def counting(world: World, expires: Callable[[], datetime] | None = None) -> dict[str, Any]:
    """A plugin that prints another token each time: t1, t2 and so on."""
    status = {"token": "tNUMBER"}
    if expires is not None:
        status["expirationTimestamp"] = expires().isoformat()
    script = credential(status).replace("cat <<'END'", "cat <<END").replace("NUMBER", "$number")
    calls = world.directory / "calls"
    return world.plugin(f'echo >> {calls}\nnumber="$(grep -c "" {calls})"\n{script}')


async def test_plugin_runs_again_when_its_token_has_expired(world: World) -> None:
    async with await connect(world, counting(world, lambda: datetime.now(UTC) - HOUR)) as server:
        await server.request("GET", "/a")
        await server.request("GET", "/b")
    assert tokens(world) == ["t2", "t3"]  # The first one was made to find faults at the start.


@pytest.mark.parametrize("expires", [None, lambda: datetime.now(UTC) + HOUR])
async def test_plugin_runs_once_while_its_token_is_valid(
    world: World, expires: Callable[[], datetime] | None
) -> None:
    async with await connect(world, counting(world, expires)) as server:
        await asyncio.gather(*(server.request("GET", "/a") for _ in range(5)))
    assert tokens(world) == ["t1"] * 5


async def test_plugin_runs_again_after_a_401_and_the_request_is_repeated(world: World) -> None:
    async with await connect(world, counting(world)) as server:
        world.a.rejected.add("Bearer t1")
        await asyncio.gather(*(server.request("POST", "/a", {}) for _ in range(5)))
        world.a.rejected.update({"Bearer t2", "Bearer t3"})
        with pytest.raises(ApiError, match="401"):
            await server.request("GET", "/b")
    # Requests that were rejected together share one new token.
    assert sorted(tokens(world)[:-2]) == ["t1"] * 5 + ["t2"] * 5
    assert tokens(world)[-2:] == ["t2", "t3"]


async def test_401_with_a_fixed_token_is_not_repeated(world: World) -> None:
    async with await connect(world, {"token": "t"}) as server:
        world.a.rejected.add("Bearer t")
        with pytest.raises(ApiError, match="401"):
            await server.request("GET", "/a")
    assert tokens(world) == ["t"]


async def test_plugin_that_fails_later_fails_the_request_only(world: World) -> None:
    async with await connect(world, counting(world)) as server:
        world.a.rejected.add("Bearer t1")
        world.plugin("exit 1")
        with pytest.raises(Unreachable, match=r"users\[u\]\.exec: .*: it ended with exit code 1"):
            await server.request("GET", "/a")
        world.a.rejected.clear()
        await server.request("GET", "/a")
    assert tokens(world) == ["t1", "t1"]


async def test_client_certificate_of_a_plugin_is_rotated(world: World) -> None:
    def status(certificate: trustme.LeafCert) -> str:
        return credential({
            "clientCertificateData": certificate.cert_chain_pems[0].bytes().decode(),
            "clientKeyData": certificate.private_key_pem.bytes().decode(),
            "expirationTimestamp": (datetime.now(UTC) - HOUR).isoformat(),
        })  # fmt: skip

    async with await connect(world, world.plugin(status(world.client))) as server:
        await server.request("GET", "/a")
        world.plugin(status(world.second))
        await server.request("GET", "/b")
    assert [seen.client for seen in world.seen] == ["alice", "bob"]


async def test_client_certificate_in_files_is_read_again(world: World) -> None:
    user = {"client-certificate": "alice.crt", "client-key": "alice.key"}
    async with await connect(world, user) as server:
        await server.request("GET", "/a")
        for ending in ("crt", "key"):
            content = (world.directory / f"bob.{ending}").read_bytes()
            (world.directory / f"alice.{ending}").write_bytes(content)
        await server.request("GET", "/b")
    assert [seen.client for seen in world.seen] == ["alice", "bob"]


async def test_half_of_a_rotated_certificate_is_not_used(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    user = {"client-certificate": "alice.crt", "client-key": "alice.key"}
    async with await connect(world, user) as server:
        (world.directory / "alice.crt").write_bytes((world.directory / "bob.crt").read_bytes())
        await server.request("GET", "/a")
    assert [seen.client for seen in world.seen] == ["alice"]
    assert "new certificates are not used" in caplog.text


async def test_token_file_is_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    token = world.directory / "token"
    token.write_text("t1")
    async with await connect(world, {"tokenFile": "token"}) as server:
        await server.request("GET", "/a")
        token.write_text("t2")
        await server.request("GET", "/b")  # Within the minute.
        world.a.rejected.add("Bearer t1")
        await server.request("GET", "/c")
        monkeypatch.setattr(credentials, "_TOKEN_FILE_SECONDS", 0.0)
        world.a.rejected.add("Bearer t2")
        with pytest.raises(ApiError, match="401"):
            await server.request("GET", "/d")
        token.write_text("t3\n")
        await server.request("GET", "/e")
        token.write_text("")
        await server.request("GET", "/f")
        token.unlink()
        await server.request("GET", "/g")
    assert tokens(world) == ["t1", "t1", "t1", "t2", "t2", "t3", "t3", "t3"]


async def test_rotated_ca_is_read_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    new = trustme.CA()
    served = new.issue_cert("127.0.0.1")
    async with await connect(world, {"token": "t"}) as server:
        await server.request("GET", "/a")
        world.ca.write_text("no certificate")
        await server.request("GET", "/b")
        assert "new certificates are not used" in caplog.text
        with served.private_key_and_cert_chain_pem.tempfile() as file:
            world.a.use_certificate(Path(file))
        world.ca.unlink()
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            await server.request("GET", "/c")
        new.cert_pem.write_to_path(world.ca)
        await server.request("GET", "/d")
    assert [seen.path for seen in world.seen] == ["/a", "/b", "/d"]


async def test_plugin_that_does_not_end_is_an_error_that_names_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "_LIMIT_SECONDS", 0.5)
    child = world.directory / "child"
    user = world.plugin(f"sleep 600 & echo $! > {child}; wait")
    path = world.directory / "config"
    with pytest.raises(NoClusterError) as caught:
        await connect(world, user)
    assert str(caught.value) == (
        f"{path}: users[u].exec: getting credentials: the credential plugin "
        f"{world.directory / 'plugin'}: it did not end in 0.5 s"
    )
    # Its children end with it.
    await eventually(lambda: not is_running(int(child.read_text())))


async def test_time_of_a_plugin_does_not_count_as_that_of_a_watch(world: World) -> None:
    status = {"token": "t", "expirationTimestamp": (datetime.now(UTC) - HOUR).isoformat()}
    async with await connect(world, world.plugin(credential(status))) as server:
        world.plugin(f"sleep 2.5\n{credential(status)}")
        async with server.watch("/w", "*/*", 30, WatchLimits(answer_seconds=2.0)):
            pass
    assert tokens(world) == ["t"]


def test_plugin_asks_at_the_terminal_also_if_standard_input_is_another(world: World) -> None:
    script = "read code </dev/tty\n" + credential({"token": "CODE"}).replace("<<'END'", "<<END")
    user = world.plugin(script.replace("CODE", "$code"), interactiveMode="IfAvailable")
    path = world.directory / "config"
    path.write_text(yaml.safe_dump(document(world.cluster(), user)))
    in_terminal = "import pty, sys; pty.spawn(['sh', '-c', 'exec \"$@\" </dev/null', *sys.argv])"
    command = [PODSETTLE, "scan", "--kubeconfig", str(path)]
    subprocess.run(
        [sys.executable, "-c", in_terminal, *command],
        input=b"123\n",
        stdout=subprocess.DEVNULL,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    assert tokens(world)[0] == "123"


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "socks5h://u:p@h:1", "http://u:p@h:p"])
async def test_proxy_that_is_not_supported_is_refused_without_its_password(
    world: World, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsupported = "only the URL of an http:// or https:// proxy is supported, and not socks5://"
    with pytest.raises(NoClusterError) as caught:
        await connect(world, {"token": "t"}, **{"proxy-url": proxy})
    assert str(caught.value).endswith(f"config: clusters[c].proxy-url: {unsupported}")
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(NoClusterError) as caught:
        await connect(world, {"token": "t"}, server="https://api.example:6443")
    assert str(caught.value).endswith(f"server: the proxy of the environment: {unsupported}")
    assert not world.seen
