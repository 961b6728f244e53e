"""The targets for which a start gate waits, in policies and in the annotation of a pod."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypeAlias

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from webhook.core.constants import DNS_SUBDOMAIN
from webhook.core.decision_input import MAX_ANNOTATION_CHARACTERS
from webhook.core.printable import cut
from webhook.core.types import StrictModel, TextPattern

MAX_TARGETS = 8
"""The maximum number of targets in a policy. Each is a process of the helper."""
MAX_POD_TARGETS = 4
"""The maximum number of targets in the annotation of a pod."""

# A text of these patterns has no comma, which separates the targets of an annotation, and no `$`,
# because the kubelet expands `$(NAME)` in arguments.
_NAME = rf"{DNS_SUBDOMAIN}\.?"
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST = rf"({_NAME}|\[[0-9a-f:.]{{2,45}}\])"
TCP_PATTERN = f"^{_HOST}:{_PORT}$"
HTTP_PATTERN = f"^http://{_HOST}(:{_PORT})?(/[-A-Za-z0-9._~=:@%/?&+;]*)?$"
DNS_PATTERN = f"^{_NAME}$"
# A name has at most 253 characters and a final dot. The helper takes no text longer than 512.
_KINDS = {
    "tcp": TextPattern(
        TCP_PATTERN,
        "is not HOST:PORT: write it as 169.254.170.23:80, mysql.prod:3306 or [fd00:ec2::23]:80",
        260,
    ),
    "http": TextPattern(
        HTTP_PATTERN,
        "is not a URL of HTTP without TLS: write it as http://169.254.169.254/",
        512,
    ),
    "dns": TextPattern(DNS_PATTERN, "is not a DNS name: write it as sts.example.com", 254),
}
_ONE_KIND_MESSAGE = "set exactly one of tcp, http and dns"


class StartTarget(StrictModel):
    """One target. Exactly one of its fields is set."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "maxProperties": 1,
            "x-kubernetes-validations": [
                {
                    "rule": "(has(self.tcp) ? 1 : 0) + (has(self.http) ? 1 : 0)"
                    " + (has(self.dns) ? 1 : 0) == 1",
                    "message": _ONE_KIND_MESSAGE,
                }
            ],
        }
    )

    tcp: Annotated[str, _KINDS["tcp"]] | None = Field(
        default=None, description="HOST:PORT. It accepts a connection."
    )
    http: Annotated[str, _KINDS["http"]] | None = Field(
        default=None,
        description="A URL that begins with http://. It answers a GET request with any status.",
    )
    dns: Annotated[str, _KINDS["dns"]] | None = Field(
        default=None,
        description="A name. It has an address, as the pod's own resolver finds it.",
    )

    @model_validator(mode="after")
    def _has_one_kind(self) -> StartTarget:
        if sum(text is not None for text in (self.tcp, self.http, self.dns)) != 1:
            raise PydanticCustomError("one_kind", _ONE_KIND_MESSAGE)
        return self

    @property
    def pair(self) -> Pair:
        """The kind and the text."""
        ((kind, text),) = self.model_dump(exclude_none=True).items()
        return kind, text


Pair: TypeAlias = tuple[str, str]
"""A target as its kind (`tcp`, `http` or `dns`) and its text."""


def parse_pod_targets(text: str) -> tuple[Pair, ...]:
    """Return the targets in a comma-separated list of 1 to MAX_POD_TARGETS targets.

    The form of a target says its kind. Raises ValueError if `text` is no such list. The author of
    the pod reads its message.
    """
    if len(text) > MAX_ANNOTATION_CHARACTERS:
        raise ValueError(f"it has more than {MAX_ANNOTATION_CHARACTERS:,} characters")
    items = text.split(",", MAX_POD_TARGETS)
    if len(items) > MAX_POD_TARGETS:
        raise ValueError(f"it has more than {MAX_POD_TARGETS} targets")
    return tuple([_parse_target(item.strip()) for item in items])


def parse_target_options(options: Iterable[tuple[str, str]]) -> tuple[Pair, ...]:
    """Return the targets in the options of a gate, such as `("--tcp", "mysql.prod:3306")`.

    A client may have written them, so options that are no targets are left out.
    """
    found = ((option.removeprefix("--"), text) for option, text in options)
    return tuple([pair for pair in found if pair[0] in _KINDS and _KINDS[pair[0]].matches(pair[1])])


def _parse_target(text: str) -> Pair:
    for kind, pattern in _KINDS.items():
        if pattern.matches(text):
            return kind, text
    shown = cut(text, 61)  # With the ellipsis.
    raise ValueError(f"{shown!r} is not HOST:PORT, a URL that begins with http://, or a DNS name")
