"""The limits that the server sets for its clients. Tests pass other values to `create_app`."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PreviewLimits:
    """Limits for POST /preview and for the process that makes previews."""

    body_timeout_seconds: float = 30.0
    """For the body of a request."""
    deadline_seconds: float = 10.0
    """For one run of the worker, which is then killed."""
    start_seconds: float = 20.0
    """For a worker to start, and for it to receive the state of the cluster."""
    queue_seconds: float = 20.0
    """For a preview to wait until the worker is free."""
    max_waiting: int = 8
    """Previews that wait or run. Each has a body of up to 4 MiB."""
    memory_bytes: int = 128 * MIB
    """Private memory of the worker. 490 Tekton pods, 4 MiB of JSON, take 77 MiB."""
    answer_bytes: int = 32 * MIB
    """All answers together that are made and not yet sent."""
    idle_seconds: float = 60.0
    """An unused worker is ended after this time."""
    reuse_bytes: int = 256 * 1024
    """Length of a text. After a longer one the worker is ended, because its heap is fragmented: the
    third list of 490 pods was seen to take 125 of 128 MiB."""
    image_seconds: float = 10.0
    """For all image look-ups of a preview together."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for connections, requests and answers."""

    header_timeout_seconds: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_wait_seconds: float = 0.05
    """How long the protocol itself waits for the rest of a short request. An API server sends
    headers and body in two writes, so the headers sometimes arrive alone."""
    body_timeout_seconds: float = 7.0
    """For the body of a review, even if its `?timeout=` is longer. A client that sends slowly
    occupies memory that other reviews need."""
    drain_body_timeout_seconds: float = 5.0
    """For the rest of a body whose request was answered early. If the server closed the connection
    at once, a Go client could fail to write and never read the answer (`mapRoundTripError` in
    net/http)."""
    write_timeout_seconds: float = 7.0
    """For a client to read, once `write_high_water_bytes` of its answers are unread."""
    idle_timeout_seconds: int = 120
    """For a connection between requests. An API server closes its idle connections after 90 s
    (kubernetes client-go transport). A timeout below that would race with the next review."""
    close_timeout_seconds: float = 1.0
    """For a client to close its side of the TLS connection. uvloop alone would wait 30 s."""
    max_header_bytes: int = 64 * 1024
    """Request line and headers together. A bearer token takes a few thousand bytes."""
    write_high_water_bytes: int = 64 * 1024
    """Encrypted answers that wait for their client. Further answers are then not written."""
    goaway_chance: float = 0.001
    """The probability that an answer closes its connection, as with kube-apiserver's
    `--goaway-chance`. API servers keep their connections open, so a new replica would otherwise
    receive almost no reviews."""
    preview: PreviewLimits = PreviewLimits()


DEFAULT_LIMITS = Limits()
