"""The table of limits in docs/http.md, with the values that the server uses."""

from __future__ import annotations

import re
from dataclasses import fields
from string import Formatter
from typing import NamedTuple

from webhook.cluster.kube_source import (
    FETCH_QUEUE_SHARE,
    FETCH_SLOT_SECONDS,
    MAX_FETCHES,
    MAX_FETCHES_PER_CLIENT,
)
from webhook.cluster.token_review import (
    MAX_REVIEWS,
    MAX_REVIEWS_PER_CLIENT,
    REVIEW_QUEUE_SECONDS,
    REVIEW_SLOT_SECONDS,
)
from webhook.core.admission.etcd_limit import MAX_PATCHED_BYTES
from webhook.core.admission.review import MAX_VALUES
from webhook.server.connections.request_head import MAX_HEADERS
from webhook.server.connections.web import MAX_CHUNKS
from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.preview.previewer import MAX_IMAGES
from webhook.server.preview.route import MAX_BODY_BYTES as MAX_PREVIEW_BODY_BYTES
from webhook.server.reviews.handler import (
    GUARANTEED_DECISION_BYTES,
    NAMESPACE_LOOKUP_SECONDS,
    NAMESPACE_LOOKUP_SHARE,
)
from webhook.server.reviews.request import answer_seconds

_REGION = re.compile(r"(<!-- limits -->\n).*?(<!-- end -->)", re.DOTALL)
_KIB = 1024
_MIB = 1024 * _KIB


class Row(NamedTuple):
    """A row of the table. The names in braces are those of `VALUES`."""

    subject: str
    limit: str
    result: str


ROWS = (
    Row(
        "a review, from its first byte to the answer",
        "the deadline",
        "`DeadlineExceeded`; 408 if not even the uid was received",
    ),
    Row(
        "receiving the body of a review",
        "the deadline, at most {body_timeout_seconds}",
        "`DeadlineExceeded`",
    ),
    Row(
        "queueing time",
        "{max_queue_share} of the deadline, at most {max_queue_seconds}",
        "`Overloaded`",
    ),
    Row(
        "the look-up of a namespace that is so new that podsettle does not know it yet",
        "{NAMESPACE_LOOKUP_SHARE} of the deadline, at most {NAMESPACE_LOOKUP_SECONDS}",
        "`NamespaceUnknown`",
    ),
    Row(
        "such look-ups",
        "{MAX_FETCHES} at the same time, and {MAX_FETCHES_PER_CLIENT} for each client address; "
        "each counts for at least {FETCH_SLOT_SECONDS}",
        "the review waits for up to {FETCH_QUEUE_SHARE} of the time above, then `NamespaceUnknown`",
    ),
    Row(
        "unfinished heads and bodies of reviews, and answers that are being sent, together",
        "{memory_bytes}. podsettle always accepts the first {guaranteed_body_bytes} of each body, "
        "and complete reviews of up to {GUARANTEED_DECISION_BYTES}",
        "`Overloaded`",
    ),
    Row(
        "the size of a review",
        "podsettle decodes up to {max_review_bytes}, and receives up to {max_body_bytes}",
        "`UnsupportedReview` above {max_review_bytes}, 413 above {max_body_bytes}",
    ),
    Row(
        "values in a pod: fields, and items of lists and maps, counted by their commas",
        "{MAX_VALUES}",
        "`PodTooLarge`",
    ),
    Row(
        "the length of a pod and its patch together, as JSON",
        "{MAX_PATCHED_BYTES}, because etcd stores at most 1.5 MiB",
        "`PodTooLarge` if there is a patch",
    ),
    Row(
        "a client that does not read while more than {write_high_water_bytes} wait to be sent",
        "{write_timeout_seconds}",
        "the connection is aborted",
    ),
    Row("a TLS handshake", "{handshake_timeout_seconds}", "the connection is closed"),
    Row(
        "TLS handshakes that are not complete",
        "{max_handshakes} on the port of reviews, {max_web_handshakes} on the web port",
        "the connection of the oldest one is closed",
    ),
    Row(
        "the headers of a request",
        "{max_header_bytes}, on the web port up to 8 KiB more; {MAX_HEADERS} headers",
        "431; on the web port 400, or the connection is aborted",
    ),
    Row(
        "receiving the headers, on the port of reviews",
        "{header_timeout_seconds}",
        "the connection is closed",
    ),
    Row(
        "the rest of a review that is already answered",
        "{write_timeout_seconds}, also for reading the answer",
        "the connection is aborted",
    ),
    Row(
        "pipelined requests: those that a client sends before it has the previous answer",
        "never accepted",
        "podsettle discards them, and closes the connection after the answer",
    ),
    Row(
        "an idle connection to the port of reviews",
        "{idle_timeout_seconds}; the API server closes its own after 90 s",
        "the connection is closed",
    ),
    Row(
        "an idle connection when podsettle [shuts down](#shutdown)",
        "{shutdown_idle_timeout_seconds}; the API server closes it at once",
        "the connection is closed",
    ),
    Row(
        "a connection that podsettle closes, and that its client leaves open",
        "{close_timeout_seconds}",
        "the connection is aborted",
    ),
    Row(
        "reviews on one connection",
        "{goaway_chance} of the answers have `Connection: close`",
        "the API server opens a new connection, which can go to a new replica",
    ),
    Row(
        "connections to the port of reviews",
        "{max_connections}",
        "one that podsettle has closed and the client has not is aborted, else the one whose last "
        "answer is the oldest",
    ),
    Row(
        "those of them that podsettle has closed and the client has not",
        "{max_closing}",
        "the oldest one is aborted",
    ),
    Row(
        "connections to the web port",
        "{max_web_connections}, each for one request and {web_timeout_seconds}",
        "the oldest one is aborted",
    ),
    Row(
        "chunks of a body on the web port",
        "{MAX_CHUNKS}",
        "the connection is aborted",
    ),
    Row(
        "checks of [tokens](#tokens)",
        "{MAX_REVIEWS} at the same time, and {MAX_REVIEWS_PER_CLIENT} for each client address; "
        "each counts for at least {REVIEW_SLOT_SECONDS}",
        "the request waits for up to {REVIEW_QUEUE_SECONDS}, then 503",
    ),
    Row(
        "a text for `/preview`",
        "{MAX_PREVIEW_BODY_BYTES}; {preview_max_pods} pods; {preview_policies_bytes} of policies, "
        "as JSON; an answer of {preview_answer_bytes}",
        "413; `podsettle preview` has no limit",
    ),
    Row("receiving a text for `/preview`", "{preview_body_timeout_seconds}", "408"),
    Row(
        "a preview",
        "{preview_deadline_seconds}, with look-ups; {preview_memory_bytes} of memory",
        "422; `podsettle preview` has no limit",
    ),
    Row(
        "previews at the same time",
        "{preview_max_requests}, until their answers are sent; one of them is made, and the others "
        "wait for at most {preview_queue_seconds}",
        "429 with `Retry-After`",
    ),
    Row(
        "look-ups of images for a preview",
        "{MAX_IMAGES}, in {preview_image_seconds}",
        "the preview continues without the other images",
    ),
    Row(
        "an answer to `/view`",
        "{view_max_policies} policies and {view_max_namespaces} namespaces, {view_list_bytes} each",
        "the answer has the first ones and the numbers of all",
    ),
    Row("answers to `/view` that are being sent", "{view_max_answers}", "503"),
)


def _values() -> dict[str, str]:
    """Return the text for each name in the table."""
    found: dict[str, object] = {
        "FETCH_QUEUE_SHARE": FETCH_QUEUE_SHARE,
        "MAX_CHUNKS": MAX_CHUNKS,
        "FETCH_SLOT_SECONDS": FETCH_SLOT_SECONDS,
        "GUARANTEED_DECISION_BYTES": GUARANTEED_DECISION_BYTES,
        "MAX_FETCHES": MAX_FETCHES,
        "MAX_FETCHES_PER_CLIENT": MAX_FETCHES_PER_CLIENT,
        "MAX_HEADERS": MAX_HEADERS,
        "MAX_IMAGES": MAX_IMAGES,
        "MAX_PATCHED_BYTES": MAX_PATCHED_BYTES,
        "MAX_VALUES": MAX_VALUES,
        "MAX_PREVIEW_BODY_BYTES": MAX_PREVIEW_BODY_BYTES,
        "MAX_REVIEWS": MAX_REVIEWS,
        "MAX_REVIEWS_PER_CLIENT": MAX_REVIEWS_PER_CLIENT,
        "NAMESPACE_LOOKUP_SECONDS": NAMESPACE_LOOKUP_SECONDS,
        "NAMESPACE_LOOKUP_SHARE": NAMESPACE_LOOKUP_SHARE,
        "REVIEW_QUEUE_SECONDS": REVIEW_QUEUE_SECONDS,
        "REVIEW_SLOT_SECONDS": REVIEW_SLOT_SECONDS,
    }
    limits = DEFAULT_LIMITS
    found |= {each.name: getattr(limits, each.name) for each in fields(limits)}
    preview = limits.preview
    found |= {f"preview_{each.name}": getattr(preview, each.name) for each in fields(preview)}
    view = limits.view
    found |= {f"view_{each.name}": getattr(view, each.name) for each in fields(view)}
    return {name: _text(name, value) for name, value in found.items()}


def _text(name: str, value: object) -> str:
    """Return a value with the unit that its name ends in."""
    if not isinstance(value, (int, float)):
        return str(value)
    unit = name.lower().rpartition("_")[2]
    if unit == "seconds":
        return f"{value:g} s"
    if unit == "bytes":
        return f"{value / _MIB:g} MiB" if value >= _MIB else f"{value / _KIB:g} KiB"
    if unit in ("share", "chance"):
        return f"{100 * value:g} %"
    return f"{value:,}"


def fill_regions(page: str) -> str:
    """Return a written page with the table in its region."""
    values = _values()
    share = answer_seconds(b"timeout=10s") / 10
    lines = [
        "In this table, the *deadline* is the time within which podsettle answers a review. It is "
        f"{100 * share:g} % of the `timeout`",
        "in the API server's query, and at most "
        f"{answer_seconds(b'timeout=30s'):g} s. Without a `timeout` in the query it is "
        f"{answer_seconds(b''):g} s.",
        "",
    ]
    lines += ["| what is limited | limit | what happens above the limit |", "|---|---|---|"]
    lines += [f"| {' | '.join(cell.format(**values) for cell in row)} |" for row in ROWS]
    table = "".join(f"{line}\n" for line in lines)
    return _REGION.sub(lambda region: region[1] + table + region[2], page)


def used_names() -> set[str]:
    """Return the names of all values in the table."""
    cells = (cell for row in ROWS for cell in row)
    return {name for cell in cells for _, name, _, _ in Formatter().parse(cell) if name}
