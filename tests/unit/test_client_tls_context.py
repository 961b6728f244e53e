"""Verification of server certificates: podsettle accepts and rejects the same ones as kubectl.

Python 3.13 and later verify strictly. On earlier versions, these tests enable strict verification.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.support.kubeconfigs import write_kubeconfig
from tests.support.registry import look_up, query
from webhook.cluster.client import ApiServer
from webhook.core.images import Unavailable
from webhook.images.lookup import ImageLookup
from webhook.server.reviews.client_certs import request_client_certificate
from webhook.tls.context import server_context
from webhook.tls.served_certificate_check import verify_error

_DAY = timedelta(days=1)
_KEY_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_encipherment=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass
class Issued:
    """A certificate and its key, in one PEM file."""

    file: Path

    def configure(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self.file)


class Authority:
    """A CA with or without the two extensions that Python's strict verification wants."""

    def __init__(self, directory: Path, *, key_identifiers: bool, key_usage: bool) -> None:
        self.file = directory / "ca.pem"
        self._directory = directory
        self._key_identifiers = key_identifiers
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "an authority")])
        builder = self._builder(self._name, self._key, timedelta(0)).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        if key_usage:
            builder = builder.add_extension(_KEY_USAGE, critical=True)
        self.file.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def issue(self, host: str, *, expired: bool = False, only_common_name: bool = False) -> Issued:
        """A certificate for an address or a name, which a server and a client may show."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            name: x509.GeneralName = x509.IPAddress(ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        age = 3 * _DAY if expired else timedelta(0)
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        if only_common_name:
            subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
            builder = self._builder(subject, key, age)
        else:
            names = x509.SubjectAlternativeName([name])
            builder = self._builder(x509.Name([]), key, age).add_extension(names, critical=True)
        certificate = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False).sign(
            self._key, SHA256()
        )
        file = self._directory / f"{host}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write_bytes(certificate.public_bytes(Encoding.PEM) + private)
        return Issued(file)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, age: timedelta
    ) -> x509.CertificateBuilder:
        begin = datetime.now(UTC) - _DAY - age
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + 2 * _DAY)
        )
        if not self._key_identifiers:
            return builder
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuers = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(own, False).add_extension(issuers, False)


Ask = Callable[[str, Authority], Awaitable[str]]


@pytest.fixture(autouse=True)
def strict_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify strictly by default on every Python version, as Python 3.13 and later do."""
    if sys.version_info >= (3, 13):
        return
    create = ssl.create_default_context

    def create_strict(*arguments: Any, **named: Any) -> ssl.SSLContext:
        context = create(*arguments, **named)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", create_strict)


def authority(directory: Path, name: str, lacks: str = "") -> Authority:
    (directory / name).mkdir()
    return Authority(
        directory / name,
        key_identifiers="key identifiers" not in lacks,
        key_usage="key usage" not in lacks,
    )


@pytest.fixture(params=["nothing", "key identifiers", "key usage", "key identifiers and key usage"])
def trusted(request: pytest.FixtureRequest, tmp_path: Path) -> Authority:
    """A CA without these extensions."""
    return authority(tmp_path, "trusted", request.param)


@asynccontextmanager
async def server_with(certificate: Issued) -> AsyncIterator[str]:
    """The address of a server that answers 404 in JSON to all requests."""

    async def answer(_request: web.BaseRequest) -> web.Response:
        return web.json_response({"kind": "Status", "message": "answered"}, status=404)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure(context)
    server = RawTestServer(answer)
    await server.start_server(ssl=context)
    async with server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture
def ask_api_server(tmp_path: Path) -> Ask:
    """Send a request to an API server with this CA in the kubeconfig, and return the error."""

    async def ask(host: str, trusted: Authority) -> str:
        ca = str(trusted.file)
        kubeconfig = write_kubeconfig(tmp_path, f"https://{host}", certificate_authority=ca)
        async with await ApiServer.connect(kubeconfig=str(kubeconfig)) as server:
            try:
                await server.request("GET", "/api")
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        raise AssertionError("404 is no answer")

    return ask


@pytest.fixture
def ask_registry(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Ask:
    """Look up an image with this CA as SSL_CERT_FILE, and return the error and its cause."""

    async def ask(host: str, trusted: Authority) -> str:
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted.file))
        lookup = ImageLookup()
        try:
            answer = await look_up(lookup, query(f"{host}/a:1"))
        finally:
            await lookup.aclose()
        assert isinstance(answer, Unavailable)
        return f"{answer.why}\n{caplog.text}"

    return ask


@pytest.fixture(params=["api_server", "registry"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Send a request to a server, trusting only one CA, and return the error."""
    found: Ask = request.getfixturevalue(f"ask_{request.param}")
    return found


def is_rejected(answer: str) -> bool:
    """Whether the error is that the server's certificate was rejected."""
    return "CERTIFICATE_VERIFY_FAILED" in answer


def was_answered(answer: str) -> bool:
    return answer == "ApiError: 404: answered" or "the registry answers 404" in answer


async def test_ca_without_an_extension_is_accepted(ask: Ask, trusted: Authority) -> None:
    async with server_with(trusted.issue("127.0.0.1")) as host:
        assert was_answered(await ask(host, trusted))


async def test_certificate_of_another_ca_or_host_and_an_expired_one_are_rejected(
    ask: Ask, trusted: Authority, tmp_path: Path
) -> None:
    for wrong in (
        authority(tmp_path, "other").issue("127.0.0.1"),  # The CAs have one name.
        trusted.issue("127.0.0.2"),
        trusted.issue("other.example"),
        trusted.issue("127.0.0.1", expired=True),
    ):
        async with server_with(wrong) as host:
            assert is_rejected(await ask(host, trusted)), wrong


async def test_certificate_whose_name_is_only_the_common_name_is_rejected(
    ask_api_server: Ask, trusted: Authority
) -> None:
    for only_common_name in (False, True):
        certificate = trusted.issue("localhost", only_common_name=only_common_name)
        async with server_with(certificate) as host:
            answer = await ask_api_server(host.replace("127.0.0.1", "localhost"), trusted)
        assert is_rejected(answer) == only_common_name


def test_trust_check_refuses_a_certificate_with_only_a_common_name(trusted: Authority) -> None:
    context, host = server_context(), "podsettle.podsettle.svc"
    trusted.issue(host, only_common_name=True).configure(context)
    assert "mismatch" in verify_error(context, host, trusted.file.read_bytes())


def test_trust_check_accepts_the_same_cas_as_the_api_server(trusted: Authority) -> None:
    context = server_context()
    trusted.issue("podsettle.podsettle.svc").configure(context)
    assert verify_error(context, "podsettle.podsettle.svc", trusted.file.read_bytes()) == ""


def test_client_certificate_of_a_ca_without_extensions_is_accepted(
    trusted: Authority, tmp_path: Path
) -> None:
    client_ca = authority(tmp_path, "clients", "key identifiers and key usage")
    serving = server_context()
    trusted.issue("localhost").configure(serving)
    request_client_certificate(serving, client_ca.file)
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.load_verify_locations(trusted.file)
    client_ca.issue("client.example").configure(asking)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert server.getpeercert()
