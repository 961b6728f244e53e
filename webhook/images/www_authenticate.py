"""The `WWW-Authenticate` header: how a registry asks for authentication.

RFC 9110 section 11.6.1, and https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

_MAX_HEADERS = 4
# Real headers have about 200 characters. They are parsed on the event loop.
MAX_HEADER_CHARACTERS = 2048
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 (a token of HTTP's grammar)
_PARAMETER = re.compile(rf'\s*({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_TOKEN}))\s*', re.ASCII)
_SCHEME = re.compile(rf"\s*({_TOKEN})(?=\s|,|$)", re.ASCII)


class Challenge(NamedTuple):
    """One way to authenticate: a scheme in lower case, and its parameters."""

    scheme: str
    parameters: Mapping[str, str]


def parse_challenges(
    headers: Iterable[str], *, max_header_characters: int = MAX_HEADER_CHARACTERS
) -> tuple[Challenge, ...]:
    """Return the challenges in the first few header values.

    A syntax error ends the parsing of its header value. The challenges before it are returned.
    """
    read = (header[:max_header_characters] for header in islice(headers, _MAX_HEADERS))
    return tuple(challenge for header in read for challenge in _parse_header(header))


def _parse_header(header: str) -> list[Challenge]:
    found: list[tuple[str, dict[str, str]]] = []
    at = 0
    while at < len(header):
        if header[at] == ",":
            at += 1
        elif (parameter := _PARAMETER.match(header, at)) and found:
            key, quoted, bare = parameter.groups()
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
            found[-1][1].setdefault(key.lower(), value)
            at = parameter.end()
        elif scheme := _SCHEME.match(header, at):
            found.append((scheme[1].lower(), {}))
            at = scheme.end()
        else:
            break
    return [Challenge(scheme, parameters) for scheme, parameters in found]
