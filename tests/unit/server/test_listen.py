"""The socket that is listened on."""

from __future__ import annotations

import socket

import pytest

from webhook.server.run import AddressError, listen


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_every_address_means_those_of_both_kinds(address: str) -> None:
    with listen("::", 0) as listener:
        socket.create_connection((address, listener.getsockname()[1])).close()


def test_without_ipv6_it_means_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a kernel without it.
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen("::", 0) as listener:
        assert listener.family is socket.AF_INET
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])).close()


def test_an_address_that_is_not_here_is_refused_in_words() -> None:
    with pytest.raises(AddressError, match=r"cannot listen on 192\.0\.2\.1 port 0: Cannot assign"):
        listen("192.0.2.1", 0)
