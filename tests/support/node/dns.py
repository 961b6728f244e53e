"""The cluster's DNS: it answers for the names of Services, and for no others."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.support.kube.cluster import KubeCluster

_SUFFIX = ".svc.cluster.local"
_ADDRESS_TYPE = 1
_INTERNET = 1
_NO_ERROR, _NO_SUCH_NAME = 0, 3
_IS_AUTHORITATIVE_RESPONSE = 0x8400
# The offset of the question's name, as a compressed name.
_NAME_OF_QUESTION = 0xC00C
_HEADER_BYTES = 12
_MAX_QUERY_BYTES = 512
_POLL_SECONDS = 0.2


@contextmanager
def serving_names(cluster: KubeCluster, address: str) -> Iterator[None]:
    """Answer queries over UDP until the block ends."""
    over = threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        server.settimeout(_POLL_SECONDS)
        thread = threading.Thread(target=_serve, args=(server, cluster, over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _serve(server: socket.socket, cluster: KubeCluster, over: threading.Event) -> None:
    while not over.is_set():
        try:
            query, client = server.recvfrom(_MAX_QUERY_BYTES)
        except TimeoutError:
            continue
        if answer := _answer(query, cluster):
            server.sendto(answer, client)


def _answer(query: bytes, cluster: KubeCluster) -> bytes | None:
    """Return None for what is no question, so that the client asks again."""
    try:
        labels, end = _name(query)
        kind, _ = struct.unpack_from("!HH", query, end)
        found = _service_address(cluster, ".".join(labels).lower())
    except (IndexError, UnicodeDecodeError, struct.error, httpx.TransportError):
        return None
    question = query[_HEADER_BYTES : end + 4]
    code = _NO_ERROR if found else _NO_SUCH_NAME
    answers = [found] if found and kind == _ADDRESS_TYPE else []
    header = struct.pack("!HHHHH", _IS_AUTHORITATIVE_RESPONSE | code, 1, len(answers), 0, 0)
    records = b"".join(
        struct.pack("!HHHLH", _NAME_OF_QUESTION, _ADDRESS_TYPE, _INTERNET, 1, 4)
        + socket.inet_aton(each)
        for each in answers
    )
    return query[:2] + header + question + records


def _name(query: bytes) -> tuple[list[str], int]:
    labels, position = [], _HEADER_BYTES
    while length := query[position]:
        labels.append(query[position + 1 : position + 1 + length].decode("ascii"))
        position += 1 + length
    return labels, position + 1


def _service_address(cluster: KubeCluster, name: str) -> str | None:
    service, _, namespace = name.removesuffix(_SUFFIX).partition(".")
    if not name.endswith(_SUFFIX) or not service or not namespace or "." in namespace:
        return None
    answer = cluster.request("GET", f"/api/v1/namespaces/{namespace}/services/{service}")
    address: str | None = answer.body.get("spec", {}).get("clusterIP")
    return None if address == "None" else address
