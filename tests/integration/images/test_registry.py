"""Look-ups at a real registry: TLS, basic and token authentication, indexes, redirects."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.support.image_fixtures import NewLookup
from tests.support.paths import ROOT
from tests.support.pull_secrets import Secrets, docker_config
from tests.support.registry import (
    DOCKER_LIST,
    PASSWORD,
    USER,
    Image,
    RunningRegistry,
    basic,
    htpasswd,
    index_of,
    look_up,
    platform,
    query,
    start_registry,
    start_server,
)
from webhook.core.images import ImageConfig, Unavailable
from webhook.images.lookup import ImageLookup

APP = ImageConfig(("/bin/app", "--x"), ("run", "$(HOME)"))
NewImage = Callable[..., Image]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA) -> Iterator[RunningRegistry]:
    """A registry that requires basic authentication."""
    home = tmp_path_factory.mktemp("guarded")
    with start_registry(home, ca, authorize=basic, auth=htpasswd(home)) as running:
        yield running


async def test_tag_is_resolved_in_three_requests_over_tls(
    registry: RunningRegistry, image: Image, lookup: ImageLookup
) -> None:
    registry.push("team/app", "1", image)
    assert await look_up(lookup, query(f"{registry.host}/team/app:1")) == APP
    assert registry.requests(path="team/app") == [
        "HEAD /v2/team/app/manifests/1 200",
        f"GET /v2/team/app/manifests/{image.digest} 200",
        f"GET /v2/team/app/blobs/{json.loads(image.manifest)['config']['digest']} 200",
    ]


async def test_digest_is_used_without_resolving_the_tag(
    registry: RunningRegistry, image: Image, lookup: ImageLookup
) -> None:
    digest = registry.push("by-digest", "1", image)
    # A tag beside a digest is ignored, even if the tag does not exist.
    assert await look_up(lookup, query(f"{registry.host}/by-digest:none@{digest}")) == APP
    assert registry.requests("HEAD", "by-digest") == []


async def test_media_types_of_docker_are_supported(
    registry: RunningRegistry, image: Image, lookup: ImageLookup
) -> None:
    made = image.as_docker
    registry.push("docker", "1", made)
    registry.push(
        "docker", "list", made, index_of((made, platform("amd64")), media_type=DOCKER_LIST)
    )
    assert await look_up(lookup, query(f"{registry.host}/docker:1")) == APP
    assert await look_up(lookup, query(f"{registry.host}/docker:list")) == APP


async def test_image_without_an_entrypoint_has_an_empty_entrypoint(
    registry: RunningRegistry, new_image: NewImage, lookup: ImageLookup
) -> None:
    registry.push("bare", "1", new_image(cmd=["sh"]))
    registry.push("empty", "1", new_image())
    assert await look_up(lookup, query(f"{registry.host}/bare:1")) == ImageConfig((), ("sh",))
    assert await look_up(lookup, query(f"{registry.host}/empty:1")) == ImageConfig((), ())


async def test_certificate_of_an_unknown_ca_is_refused(
    registry: RunningRegistry, image: Image, caplog: pytest.LogCaptureFixture
) -> None:
    registry.push("tls", "1", image)
    lookup = ImageLookup()
    answer = await look_up(lookup, query(f"{registry.host}/tls:1"))
    await lookup.aclose()
    assert isinstance(answer, Unavailable)
    assert "TLS: CERTIFICATE_VERIFY_FAILED" in caplog.text
    assert registry.requests(path="tls") == []


# Authentication.


async def test_basic_authentication_needs_the_credentials_of_the_registry(
    guarded: RunningRegistry, image: Image, new_lookup: NewLookup
) -> None:
    guarded.push("basic", "1", image)
    asked = query(f"{guarded.host}/basic:1")
    refused = await look_up(new_lookup(), asked)
    assert refused == Unavailable(f"{guarded.host}/basic:1: the registry answers 401")
    secrets = Secrets(docker_config({guarded.host: (USER, PASSWORD)}))
    assert await look_up(new_lookup(secrets), asked) == APP
    wrong = Secrets(docker_config({guarded.host: (USER, "wrong")}))
    assert await look_up(new_lookup(wrong), asked) == refused
    elsewhere = Secrets(docker_config({"quay.io": (USER, PASSWORD)}))
    assert await look_up(new_lookup(elsewhere), asked) == refused


def _b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class TokenServer:
    """A server of tokens that docker-registry accepts: https://distribution.github.io/distribution/spec/auth/."""

    def __init__(self, home: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tokens")])
        now = datetime.now(UTC)
        self._certificate = (
            x509.CertificateBuilder(name, name, self._key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.bundle = home / "bundle.pem"
        self.bundle.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        self.asked: list[Mapping[str, str]] = []

    def token(self, scope: str) -> str:
        kind, name, actions = scope.split(":")
        der = self._certificate.public_bytes(serialization.Encoding.DER)
        header = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(der).decode()]}
        now = int(time.time())
        claims = {
            "iss": "tokens",
            "sub": "",
            "aud": "registry",
            "exp": now + 300,
            "nbf": now - 60,
            "iat": now,
            "jti": "1",
            "access": [{"type": kind, "name": name, "actions": actions.split(",")}],
        }
        signed = ".".join(_b64(json.dumps(part).encode()) for part in (header, claims))
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def authorize(self, scope: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token(scope)}"}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        if request.headers.get("Authorization") != basic("")["Authorization"]:
            return web.Response(status=401)
        return web.json_response(
            {"token": None, "access_token": self.token(request.query["scope"])}
        )


async def test_token_authentication_needs_an_allowed_token_server(
    tmp_path: Path, ca: trustme.CA, image: Image, new_lookup: NewLookup
) -> None:
    tokens = TokenServer(tmp_path)
    async with start_server(ca, tokens.answer) as server:
        auth = {
            "token": {
                "realm": f"https://{server.host}/token",
                "service": "registry",
                "issuer": "tokens",
                "rootcertbundle": str(tokens.bundle),
            }
        }
        with start_registry(tmp_path, ca, authorize=tokens.authorize, auth=auth) as registry:
            registry.push("secret/app", "1", image)
            name = f"{registry.host}/secret/app:1"
            secrets = Secrets(docker_config({f"{registry.host}/secret": (USER, PASSWORD)}))
            allowed = query(name, registry.host, server.host)
            assert await look_up(new_lookup(secrets), allowed) == APP
            assert tokens.asked == [{"service": "registry", "scope": "repository:secret/app:pull"}]
            anonymous = await look_up(new_lookup(), allowed)
            assert anonymous == Unavailable(f"{name}: the registry's token server answers 401")
            # The token server has a loopback address that the policy does not list.
            unseen = await look_up(new_lookup(secrets), query(name))
            assert unseen == Unavailable(
                f"{name}: refusing to connect to '{server.host}': "
                "loopback, link-local or metadata address"
            )
            assert len(tokens.asked) == 2


def test_ca_in_ssl_cert_file_is_trusted(
    registry: RunningRegistry, image: Image, ca: trustme.CA, tmp_path: Path
) -> None:
    """Operators configure a private CA by OpenSSL's variable SSL_CERT_FILE."""
    registry.push("trusted", "1", image)
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    script = (
        "import asyncio, sys\n"
        "from tests.support.registry import look_up, query\n"
        "from webhook.images.lookup import ImageLookup\n"
        "async def main():\n"
        "    lookup = ImageLookup()\n"
        "    print(await look_up(lookup, query(sys.argv[1])))\n"
        "    await lookup.aclose()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, f"{registry.host}/trusted:1"],
        env={"SSL_CERT_FILE": str(tmp_path / "ca.pem"), "PATH": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == str(APP), done.stderr
