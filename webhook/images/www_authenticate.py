"""Parses the `WWW-Authenticate` header, by which a registry asks for authentication.

Sources: RFC 9110 section 11.6.1, and https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

_MAX_HEADERS = 4
# Real headers have about 200 characters. Longer ones would block the event loop, which parses them.
MAX_HEADER_CHARACTERS = 2048
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 (a token of HTTP's grammar)
_PARAMETER = re.compile(rf'\s*({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_TOKEN}))\s*', re.ASCII)
_SCHEME = re.compile(rf"\s*({_TOKEN})(?=\s|,|$)", re.ASCII)


class Challenge(NamedTuple):
    """One way to authenticate. `scheme` is in lower case."""

    scheme: str
    parameters: Mapping[str, str]


def parse_challenges(
    headers: Iterable[str], *, max_header_characters: int = MAX_HEADER_CHARACTERS
) -> tuple[Challenge, ...]:
    """Return the challenges in the first few header values.

    If a header value has a syntax error, only the challenges before the error are returned.
    """
    read = (header[:max_header_characters] for header in islice(headers, _MAX_HEADERS))
    return tuple(challenge for header in read for challenge in _parse_header(header))


def _parse_header(header: str) -> list[Challenge]:
    """Return the challenges in one header value, up to the first syntax error."""
    challenges: list[tuple[str, dict[str, str]]] = []
    position = 0
    while position < len(header):
        if header[position] == ",":
            position += 1
        elif (parameter := _PARAMETER.match(header, position)) and challenges:
            key, quoted, bare = parameter.groups()
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
            challenges[-1][1].setdefault(key.lower(), value)
            position = parameter.end()
        elif scheme := _SCHEME.match(header, position):
            challenges.append((scheme[1].lower(), {}))
            position = scheme.end()
        else:
            break
    return [Challenge(scheme, parameters) for scheme, parameters in challenges]
