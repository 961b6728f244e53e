"""The responses of the API server that are not decoded at once: pages of lists, and raw bodies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from webhook.cluster.errors import Unreachable
from webhook.core.pod import DECODE_ERRORS
from webhook.core.types import Json

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

_decode = msgspec.json.Decoder().decode


class PageMetadata(msgspec.Struct, rename="camel"):
    """The metadata of a page of a list."""

    resource_version: str
    next: str = msgspec.field(default="", name="continue")
    """The token for the next page. It is empty on the last page."""
    remaining: int | None = msgspec.field(default=None, name="remainingItemCount")
    """The number of objects on the next pages. The API server leaves it out with a selector."""


class Page(msgspec.Struct):
    """A page of a list."""

    metadata: PageMetadata
    kind: str = ""
    raw_items: list[msgspec.Raw] | None = msgspec.field(default=None, name="items")
    """The objects as JSON. A caller that reads few fields decodes them with a type of its own."""

    @property
    def items(self) -> Iterator[Json]:
        """The objects, decoded one at a time. Raises Unreachable.

        To decode all objects of a page together would take much memory and fragment the heap.
        """
        for raw_item in self.raw_items or ():
            try:
                item = _decode(raw_item)
            except DECODE_ERRORS as error:
                raise Unreachable(f"list: an object is not valid JSON: {error}") from None
            yield named_object(item)


def named_object(value: object) -> Json:
    """Return an object of an API server. Raises Unreachable for a value without a name."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise Unreachable("an object in the response has no name, so it is not of an API server")
    return cast("Json", value)


@contextmanager
def well_formed(title: str) -> Iterator[None]:
    """Raise Unreachable if an object lacks a field that the API server requires."""
    try:
        yield
    except (AttributeError, LookupError, TypeError) as error:
        why = f"is malformed ({error!r:.60}), so it is not of an API server"
        raise Unreachable(f"{title} in the response {why}") from error


decode_page = msgspec.json.Decoder(Page).decode


def page_of(content: bytes, path: str) -> Page:
    """Return the page of a list whose resource a path ends with. Raises one of DECODE_ERRORS."""
    page = decode_page(content)
    resource = path.partition("?")[0].rpartition("/")[2]
    if page.kind and not is_kind_of(page.kind, resource, is_list=True):
        raise msgspec.ValidationError(f"it has the kind {page.kind!r:.60}")
    return page


def is_kind_of(kind: object, resource: str, *, is_list: bool) -> bool:
    """Return whether a kind is that of objects or lists of a resource with a regular plural.

    A list may also be of the kind `List`, and metadata alone is of another kind.
    """
    if not isinstance(kind, str) or kind.endswith("List") != is_list:
        return False
    name = kind.removesuffix("List").lower()
    plurals = (f"{name}s", f"{name}es", f"{name[:-1]}ies")
    return resource in plurals or kind == "List" or name == "partialobjectmetadata"


class RawAnswer(NamedTuple):
    """A response of any status, with its body as it was received."""

    status: int
    headers: CIMultiDictProxy[str]
    content: bytes


def server_time(headers: CIMultiDictProxy[str]) -> datetime | None:
    """Return the time of the server by the header Date, or None if there is no valid one."""
    try:
        return parsedate_to_datetime(headers.get("Date", "")).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None
