"""The limits that the server sets for its clients. Tests use smaller values."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PreviewLimits:
    """Limits for POST /preview and for the process that makes previews."""

    body_timeout_seconds: float = 30.0
    """Maximum time to receive the body of a request."""
    deadline_seconds: float = 10.0
    """Maximum time for a preview, without image look-ups. Then its worker is killed."""
    start_seconds: float = 20.0
    """Maximum time for a worker to start."""
    queue_seconds: float = 20.0
    """Maximum time for which a preview waits until those before it are made."""
    bodies_bytes: int = 32 * MIB
    """Maximum length of all bodies together. Previews are queued, each with a body of up to 4 MiB,
    so they would exhaust the memory of reviews."""
    max_pending: int = 8
    """Maximum number of previews that wait or run. Each occupies up to 4 MiB with its body."""
    memory_bytes: int = 128 * MIB
    """Maximum private memory of the worker. 490 Tekton pods (4 MiB of JSON) take 77 MiB."""
    answer_bytes: int = 32 * MIB
    """Maximum length of all answers together that wait to be sent."""
    image_seconds: float = 10.0
    """Maximum time for all image look-ups of a preview together."""


@dataclass(frozen=True, slots=True)
class ViewLimits:
    """Limits for GET /view."""

    max_policies: int = 200
    """Maximum number of policies in an answer. The page shows each of them."""
    max_namespaces: int = 2000
    """Maximum number of namespaces in an answer."""
    list_bytes: int = 512 * 1024
    """Maximum length of all policies in an answer, and of all namespaces. A policy takes about
    400 bytes, and a namespace about 150. The API server accepts objects of up to 3 MiB."""
    max_answers: int = 16
    """Maximum number of answers that are being sent at the same time, up to 1 MiB each."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for connections, requests and answers.

    The memory of all connections is limited by `memory_bytes`, by `max_connections` times
    the buffers of a TLS connection, and by `max_handed_over` times 64 KiB in uvicorn's protocol.
    """

    handshake_timeout_seconds: float = 10.0
    """Maximum time of a TLS handshake. An API server ends its side after 10 s, too."""
    max_handshakes: int = 500
    """Maximum number of TLS handshakes that are not complete. Above it, the oldest one is ended."""
    header_timeout_seconds: float = 10.0
    """Maximum time from the first byte of a request to the end of its headers."""
    body_timeout_seconds: float = 7.0
    """Maximum time to receive the body of a review, even if its `?timeout=` is longer. A client
    that sends slowly occupies memory that other reviews need."""
    write_timeout_seconds: float = 7.0
    """Maximum time for a client to read its answers after the write buffer has reached
    `write_high_water_bytes`, or after the last answer on a connection. In this time the server also
    discards the rest of a body whose request was answered early. If it did not read, a Go client
    could fail to write the body, and would then not read the answer (`mapRoundTripError` in
    net/http)."""
    idle_timeout_seconds: int = 120
    """Maximum time of a connection without requests. An API server closes its idle connections
    after 90 s (kubernetes client-go transport). With a timeout below 90 s, the server could close a
    connection while the API server sends the next review on it."""
    shutdown_idle_timeout_seconds: float = 5.0
    """Maximum time for a client to close its idle connection at the server's exit. API servers take
    milliseconds, because the server asks them to. uvicorn's exit takes at most 10 s in all."""
    close_timeout_seconds: float = 1.0
    """Maximum time for a client to close its side of a TLS connection. uvloop alone waits 30 s."""
    handed_over_timeout_seconds: float = 120.0
    """Maximum time of a connection from the head of a request that uvicorn answers. A preview has
    30 s for its body, 20 s in the queue, 20 s for the start of its worker, 10 s of work, and then
    it is sent."""
    probe_timeout_seconds: float = 5.0
    """The same for a request to /livez or /readyz, which is answered at once."""
    max_header_bytes: int = 64 * 1024
    """Maximum length of the request line and headers of a review."""
    max_handed_over_header_bytes: int = 24 * 1024
    """Maximum length of the request line and headers of a request that uvicorn answers. A bearer
    token takes a few thousand bytes, and up to 16 KiB."""
    write_high_water_bytes: int = 64 * 1024
    """Length of the encrypted answers in the write buffer at which the server stops writing."""
    memory_bytes: int = 32 * MIB
    """Maximum length of all incomplete requests, of the reviews that wait, and of the answers that
    are being sent, together. If 150 clients send pods of the maximum length, the process takes
    about 240 MB, including connections and decoding. Answers to previews take up to 32 MiB more,
    cached images and pull secrets 32 MiB, and the worker process for previews 150 MB. The chart
    limits the container to 512 MiB."""
    guaranteed_body_bytes: int = 16 * 1024
    """Number of bytes of each body that are received even if `memory_bytes` are in use. They
    contain the uid, which an answer needs. A connection takes more memory than these bytes."""
    max_review_bytes: int = 4 * MIB
    """The pod of a longer review is admitted unchanged. The API server accepts objects of up to
    3 MiB. In a review they can be longer, because Go's JSON encoder escapes some characters with
    six bytes."""
    max_body_bytes: int = 32 * MIB
    """A longer body of a review is refused. An escaped object of 3 MiB has up to 18 MiB, and the
    rest of its review may have 14 MiB."""
    max_waiting_reviews: int = 1000
    """Maximum number of complete reviews that wait for a look-up, or for their client to read the
    answer. An API server has up to 600 requests in flight by default (the sum of
    --max-requests-inflight and --max-mutating-requests-inflight)."""
    max_queue_share: float = 0.25
    """Maximum share of its deadline for which a review may be queued. One thread answers all
    reviews. If the queue is longer, more reviews arrive than this thread can answer. Without the
    limit, every answer would then be late."""
    max_queue_seconds: float = 1.0
    """Maximum time for which a review may be queued. A client chooses its deadline. With a share
    alone, the reviews of an attacker with `?timeout=30s` would be decided after 5 s in the queue,
    and those of an API server with a timeout of 2 s would be shed after 0.35 s."""
    max_connections: int = 1000
    """Maximum number of connections. Above it, the one whose last answer is the oldest is closed,
    so that a client with many connections cannot lock out the API server. An API server keeps up to
    25 idle connections, and has up to 200 mutating requests in flight by default. An idle
    connection takes 50 to 200 KiB, depending on how much it once received at a time."""
    max_closing: int = 200
    """Maximum number of connections that the server has closed and the client has not. Above it,
    the oldest one is aborted. They do not count as connections."""
    max_handed_over: int = 64
    """Maximum number of connections that uvicorn serves, without probes. They do not count as
    `max_connections`. Each holds a head and up to 64 KiB of a body in uvicorn's protocol."""
    max_handed_over_per_client: int = 16
    """Maximum number of them for each client address, so that one client cannot take all. Behind a
    Service with SNAT, many clients have one address: a browser opens up to 6 connections, and
    8 previews can be pending. The same maximum applies to probes."""
    max_probes: int = 64
    """Maximum number of connections with a request to /livez or /readyz. Above it, the oldest one
    is aborted, which was answered long ago."""
    goaway_chance: float = 0.001
    """Probability that the server closes a connection after an answer, like kube-apiserver's
    `--goaway-chance`. API servers keep their connections open. If no connection were closed, a new
    replica would receive almost no reviews."""
    preview: PreviewLimits = PreviewLimits()
    view: ViewLimits = ViewLimits()


DEFAULT_LIMITS = Limits()
