"""What answers late on a real node: an agent of the node, a network policy, and DNS.

Connections come from pods to the node itself, because pods have no way out.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.node.network import NODE_ADDRESS, POD_BRIDGE
from tests.support.node.node import RealNode
from tests.support.node.pods import states

AGENT_ADDRESS = "169.254.170.23"
"""The address of the agent of EKS Pod Identity."""
AGENT_URL = f"http://{AGENT_ADDRESS}/"
SERVER_PORT = 8306
SERVER = f"{NODE_ADDRESS}:{SERVER_PORT}"
"""A server that the network policy lets a pod reach late."""
NAME = "kubernetes.default.svc.cluster.local"
"""A name that DNS answers."""
PROGRAMS = {
    "agent": f"timeout 3 wget -q -O /dev/null {AGENT_URL} || exit 1",
    "network policy": f"timeout 3 wget -q -O /dev/null http://{SERVER}/ || exit 1",
    "DNS": f"timeout 3 nslookup {NAME} || exit 1",
}
"""For each of them, a script that needs it and does not retry. With `exit`, the shell does not
replace itself by the program, which as PID 1 would ignore the signal of `timeout`."""
_AGENT_DEVICE = "node0"
_CHAIN = "LATE"
_POLL_SECONDS = 0.1


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    # The pods of a measurement connect at the same time. A full queue would drop connections.
    request_queue_size = 128


@contextmanager
def serving(port: int = SERVER_PORT) -> Iterator[None]:
    """Answer requests at every address of the node, also at those that it gets later."""
    server = _Server(("0.0.0.0", port), _Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def agent_after(seconds: float) -> Iterator[None]:
    """Let the agent answer only some seconds after the beginning of the block.

    Before, its address does not exist, as before a DaemonSet's pod with the host's network has set
    it up.
    """
    device = ("dev", _AGENT_DEVICE)
    timer = threading.Timer(seconds, _run, ("ip", "address", "add", f"{AGENT_ADDRESS}/32", *device))
    with serving(80):
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            _run("ip", "address", "flush", *device, "to", AGENT_ADDRESS)


@contextmanager
def late_for_new_pods(node: RealNode, namespace: str, seconds: float) -> Iterator[None]:
    """Drop what each pod sends to SERVER and to DNS until some seconds after its start.

    The time counts from the start of the pod's first container. On a busy machine, that is seconds
    after the pod has an address. The rules are in the order of a network policy: everything is
    dropped unless the pod's address is listed.
    """
    packets = [("tcp", str(SERVER_PORT)), ("udp", "53"), ("tcp", "53")]
    stopped = threading.Event()
    thread = threading.Thread(
        target=_list_addresses, args=(node, namespace, seconds, stopped), daemon=True
    )
    _run("iptables", "-w", "-N", _CHAIN)
    _run("iptables", "-w", "-A", _CHAIN, "-j", "DROP")
    jumps = [
        ("INPUT", "-i", POD_BRIDGE, "-p", protocol, "--dport", port, "-j", _CHAIN)
        for protocol, port in packets
    ]
    for jump in jumps:
        _run("iptables", "-w", "-I", *jump)
    with serving():
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()
            for jump in jumps:
                _run("iptables", "-w", "-D", *jump)
            _run("iptables", "-w", "-F", _CHAIN)
            _run("iptables", "-w", "-X", _CHAIN)


def _list_addresses(
    node: RealNode, namespace: str, seconds: float, stopped: threading.Event
) -> None:
    """List the address of each pod some seconds after its start, until the pod has ended."""
    seen: dict[str, float] = {}
    listed: set[str] = set()
    while not stopped.wait(_POLL_SECONDS):
        pods = node.cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
        present = {
            pod["status"]["podIP"]
            for pod in pods
            if pod["status"].get("podIP")
            and pod["status"]["phase"] in ("Pending", "Running")
            and any("waiting" not in state for state in states(pod).values())
        }
        now = time.monotonic()
        for address in present:
            since = seen.setdefault(address, now)
            if now - since >= seconds and address not in listed:
                _run("iptables", "-w", "-I", _CHAIN, "-s", address, "-j", "ACCEPT")
                listed.add(address)
        for address in seen.keys() - present:
            del seen[address]
            if address in listed:
                _run("iptables", "-w", "-D", _CHAIN, "-s", address, "-j", "ACCEPT")
                listed.discard(address)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
