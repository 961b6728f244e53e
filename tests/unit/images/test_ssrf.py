"""Tests of the addresses that podsettle never connects to."""

from __future__ import annotations

import pytest

from webhook.images.ssrf import is_forbidden, parse_ip_literal


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.0.9", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1",
        "224.0.0.1", "255.255.255.255", "240.0.0.1", "100.100.100.200", "168.63.129.16",
        "192.0.0.192", "::", "::1", "fe80::1", "fe80::1%eth0", "ff02::1", "fd00:ec2::254",
        "fd20:ce::254", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1",
        "::169.254.169.254", "::127.0.0.1", "::ffff:0:169.254.169.254", "fec0::1", "feff::1",
        "2001:0:a9fe:a9fe::", "2001:0:808:808::5601:5601", "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:a9:fe:a9fe::", "64:ff9b:1::a9:fea9:fe00:0", "fd00:ec2::23", "fd00:ec2::253",
        "fd00:c1::a9fe:a9fe", "fd00:42::42",
    ],
)  # fmt: skip
def test_address_of_a_special_range_is_forbidden(address: str) -> None:
    assert is_forbidden(address)


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "8.8.8.8", "169.253.1.1",
        "fd00::1", "2001:db8::1", "2606:4700::1", "::ffff:10.0.0.1", "64:ff9b::808:808",
        "::10.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b:1::a00:1", "64:ff9b:1:0:a:1:203::",
        "64:ff9b:1:808:8:800::", "64:ff9b:1:8:8:808::", "64:ff9b:1:808:0:800::",
        "2002:808:808::1", "2001:0:808:808::f5ff:fffe", "fd00:ec3::254", "fd00:42::43",
    ],
)  # fmt: skip
def test_ordinary_address_is_allowed(address: str) -> None:
    assert not is_forbidden(address)


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0177.0.0.1", "1.2.3", "a:b", "é", "\uff11.1.1.1"]
)
def test_malformed_ip_address_is_an_error(host: str) -> None:
    with pytest.raises(ValueError, match=r"is not a host|IPv[46] address"):
        parse_ip_literal(host)


def test_host_name_is_not_parsed_as_an_ip_address() -> None:
    for name in ("quay.io", "localhost", "0x7f.1", "127.0.0.1.nip.io"):
        assert parse_ip_literal(name) is None
    assert str(parse_ip_literal("[::1]")) == "::1"
