#!/bin/sh
# Software: aiodns 4.0.4 and pycares 5.2.1 of Python. aiohttp resolves by getaddrinfo() of aiodns if
#   it is installed.
# Guess, written before the run: query_dns() looks for web.shop in the search domains of the pod, as
#   getaddrinfo() does.
# Behaviour: query_dns() asks for the name as it stands only, and does not find the Service. With
#   the `ndots:5` of pods, getaddrinfo() asks for it in each search domain first, also for the whole
#   name web.shop.svc.cluster.local without a dot at its end.
# Seen on 2026-12-01: the lines below, with the names that the DNS server was asked for.
# Needs Python 3.11 or later and PyPI. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check aiodns==4.0.4 pycares==5.2.1
cat >main.py <<'PYTHON'
import asyncio
import socket

import aiodns

asked = []


class Server(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        end = data.index(b"\0", 12)
        # Each label has its length, a byte below those of letters, in front.
        asked.append("".join(chr(byte) if byte > 63 else "." for byte in data[13:end]))
        found = asked[-1] == "web.shop.svc.cluster.local"
        flags = b"\x81\x80\0\1\0\1\0\0\0\0" if found else b"\x81\x83\0\1\0\0\0\0\0\0"
        record = b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4\x0a\0\0\1" if found else b""
        self.transport.sendto(data[:2] + flags + data[12 : end + 5] + record, address)


async def main():
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Server, ("127.0.0.1", 0))
    domains = ["shop.svc.cluster.local", "svc.cluster.local"]
    port = transport.get_extra_info("sockname")[1]
    for name in "web.shop", "web.shop.svc.cluster.local":
        for method in "getaddrinfo", "query_dns":
            asked.clear()
            resolver = aiodns.DNSResolver(["127.0.0.1"], udp_port=port, domains=domains, ndots=5)
            more = {"family": socket.AF_INET} if method == "getaddrinfo" else {"qtype": "A"}
            try:
                await getattr(resolver, method)(name, **more)
                result = "found"
            except aiodns.error.DNSError as error:
                result = error.args[1]
            print(f"{method}({name}): {result}", *asked)


asyncio.run(main())
PYTHON
venv/bin/python main.py >seen
cat seen
diff seen - <<'END'
getaddrinfo(web.shop): found web.shop.shop.svc.cluster.local web.shop.svc.cluster.local
query_dns(web.shop): Domain name not found web.shop
getaddrinfo(web.shop.svc.cluster.local): found web.shop.svc.cluster.local.shop.svc.cluster.local web.shop.svc.cluster.local.svc.cluster.local web.shop.svc.cluster.local
query_dns(web.shop.svc.cluster.local): found web.shop.svc.cluster.local
END
