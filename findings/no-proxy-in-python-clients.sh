#!/bin/sh
# Software: of Python, requests 2.34.2, kubernetes 37.0.2, aiohttp 3.14.5, httpx 0.28.1 (which
#   kr8s 0.20.15 needs) and httpx2 2.16.2 (which lightkube 1.0.1 needs).
# Guess, written before the run: requests and kubernetes agree on each entry of NO_PROXY, and know
#   networks of IPv4 only. aiohttp and the two of httpx's kind know no networks, and these two
#   take *.svc.
# Behaviour: httpx takes neither, httpx2 takes both. kubernetes knows networks of IPv6. So if an
#   admission webhook puts the services' network into NO_PROXY of all pods, kr8s still asks the
#   proxy for the API server, and lightkube does not.
# Seen on 2026-11-29: the lines below.
# Needs Python 3.11 or later and PyPI. Ends with 1 if the behaviour is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check \
	requests==2.34.2 kubernetes==37.0.2 aiohttp==3.14.5 httpx==0.28.1 httpx2==2.16.2
cat >main.py <<'PY'
import os

for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[name]
os.environ["HTTPS_PROXY"] = "http://proxy.example:3128"

import httpx
import httpx2
import requests
from aiohttp.client import URL
from aiohttp.helpers import get_env_proxy_for_url
from kubernetes.client.rest import should_bypass_proxies


def asks_directly(entry: str, address: str) -> dict[str, bool]:
    os.environ["NO_PROXY"] = entry
    direct = {"requests": not requests.utils.get_environ_proxies(address)}
    direct["kubernetes"] = should_bypass_proxies(address, entry)
    try:
        get_env_proxy_for_url(URL(address))
    except LookupError:  # There is no proxy for it.
        direct["aiohttp"] = True
    for library in [] if "::" in entry else [httpx, httpx2]:
        client = library.Client()
        transport = client._transport_for_url(library.URL(address))
        direct[library.__name__] = transport is client._transport
    return direct


for entry, address in (
    ("10.96.0.0/12", "https://10.96.0.1"), ("fd00::/8", "https://[fd00::1]"),
    (".svc", "https://a.svc"), ("*.svc", "https://a.svc"),
):
    direct = asks_directly(entry, address)
    print(f"{entry}:", *(name for name, is_direct in direct.items() if is_direct))
PY
venv/bin/python main.py >seen
cat seen
diff seen - <<'END'
10.96.0.0/12: requests kubernetes httpx2
fd00::/8: kubernetes
.svc: requests kubernetes aiohttp httpx httpx2
*.svc: httpx2
END
