"""The listening socket."""

from __future__ import annotations

import socket

import pytest

from webhook.server.run import AddressError, listen


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_wildcard_address_includes_ipv4_and_ipv6(address: str) -> None:
    with listen("::", 0, "") as listener:
        socket.create_connection((address, listener.getsockname()[1])).close()


def test_wildcard_address_without_ipv6_includes_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a kernel without IPv6.
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen("::", 0, "") as listener:
        assert listener.family is socket.AF_INET
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])).close()


def test_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(AddressError, match=r"cannot listen on 192\.0\.2\.1 port 0: Cannot assign"):
        listen("192.0.2.1", 0, "")


def test_host_that_cannot_be_resolved_is_an_error_with_its_cause() -> None:
    with pytest.raises(AddressError, match=r"^cannot listen on no host port 0: .*[Nn]ame") as error:
        listen("no host", 0, "")
    assert "Unknown" not in str(error.value)
