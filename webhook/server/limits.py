"""The limits that the server sets for its clients. Tests use smaller values."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PreviewLimits:
    """Limits for POST /preview and for the process that makes previews."""

    body_timeout_seconds: float = 10.0
    """Maximum time to receive the body of a request."""
    max_requests: int = 9
    """Maximum number of requests until their answers are sent: a preview is made, and eight wait.
    Each occupies up to 256 KiB with its body, or `answer_bytes`."""
    queue_seconds: float = 5.0
    """Maximum time for which a preview waits until those before it are made."""
    deadline_seconds: float = 20.0
    """Maximum time for a preview, with the start of its worker and with image look-ups. Then its
    worker is killed. Beside other busy processes, the start alone can take 10 s, because the worker
    has a low priority."""
    max_pods: int = 50
    """Maximum number of pods in a text."""
    policies_bytes: int = 64 * 1024
    """Maximum length of all policies in a text, as JSON. The server validates and compiles each one
    in steps, which take up to 5 ms at this length."""
    image_seconds: float = 5.0
    """Maximum time for all image look-ups of a preview together."""
    memory_bytes: int = 128 * MIB
    """Maximum private memory of the worker."""
    answer_bytes: int = 8 * MIB
    """Maximum length of an answer. 50 pods of 20 containers take 2.5 MiB."""


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

    The memory of all connections is limited by `memory_bytes`, by `max_connections` times the
    buffers of a TLS connection, and by `max_web_connections` times 320 KiB: 64 KiB in uvicorn's
    protocol, and a text for a preview.
    """

    handshake_timeout_seconds: float = 10.0
    """Maximum time of a TLS handshake. An API server ends its side after 10 s, too."""
    max_handshakes: int = 400
    """Maximum number of TLS handshakes on the port of reviews that are not complete. Above it, the
    oldest one is ended."""
    max_web_handshakes: int = 50
    """The same for the web port."""
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
    milliseconds, because the server asks them to."""
    close_timeout_seconds: float = 1.0
    """Maximum time for a client to close its side of a TLS connection. uvloop alone waits 30 s."""
    max_header_bytes: int = 24 * 1024
    """Maximum length of the request line and headers. A bearer token takes a few thousand bytes,
    and up to 16 KiB."""
    write_high_water_bytes: int = 64 * 1024
    """Length of the encrypted answers in the write buffer at which the server stops writing."""
    memory_bytes: int = 32 * MIB
    """Maximum length of all incomplete requests, of the reviews that wait, and of the answers that
    are being sent, together. If 150 clients send pods of the maximum length, the process takes
    about 240 MB, including connections and decoding. Answers to previews take up to 72 MiB more,
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
    max_queue_share: float = 0.25
    """Maximum share of its deadline for which a review may be queued. One thread answers all
    reviews. If the queue is longer, more reviews arrive than this thread can answer. Without the
    limit, every answer would then be late."""
    max_queue_seconds: float = 1.0
    """Maximum time for which a review may be queued. A client chooses its deadline. With a share
    alone, the reviews of an attacker with `?timeout=30s` would be decided after 5 s in the queue,
    and those of an API server with a timeout of 2 s would be shed after 0.35 s."""
    max_connections: int = 1000
    """Maximum number of connections. Above it, one of those whose last answer is the oldest is
    closed, so that a client with many connections cannot lock out the API server. An API server
    keeps up to 25 idle connections, and has up to 200 mutating requests in flight by default. An
    idle connection takes 50 to 200 KiB, depending on how much it once received at a time."""
    max_closing: int = 200
    """Maximum number of those connections that the server has closed and the client has not. Above
    it, the oldest one of them is aborted. Each occupies 100 KiB or more."""
    web_timeout_seconds: float = 60.0
    """Maximum time of a connection to the web port, which answers one request."""
    max_web_connections: int = 200
    """Maximum number of connections to the web port. Above it, the oldest one is aborted."""
    goaway_chance: float = 0.001
    """Probability that the server closes a connection after an answer, like kube-apiserver's
    `--goaway-chance`. API servers keep their connections open. If no connection were closed, a new
    replica would receive almost no reviews."""
    preview: PreviewLimits = PreviewLimits()
    view: ViewLimits = ViewLimits()


DEFAULT_LIMITS = Limits()
