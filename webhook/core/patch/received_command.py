"""The place in a patch for the command that a pod has sent.

Of a command without a wrapper of podsettle, a decision reads the first string only. So it is made
without the rest, and holds for all pods that differ in the rest. Its patch contains a place for
each command that it wraps, and the command of the pod that is answered fills the place.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from webhook.core.pod import Pod

ContainerList: TypeAlias = Literal["initContainers", "containers"]

# JSON contains no such byte, not even inside of a text. So no value of a client can look like a
# place.
_MARK = b"\0"
_MAX_PLACES = 1_024
"""More than a pod has containers that are evaluated."""
_encode = msgspec.json.Encoder().encode


@lru_cache(_MAX_PLACES)
def received_command(where: ContainerList, index: int) -> msgspec.Raw:
    """Return the place for the strings of a container's command, as an item of a list."""
    return msgspec.Raw(b"%b%b/%d%b" % (_MARK, where.encode(), index, _MARK))


class PatchTemplate(NamedTuple):
    """A patch as the API requires it, JSON in base64, with places for the commands of a pod."""

    texts: tuple[bytes, ...]
    """The text before, between and after the places."""
    places: tuple[tuple[bool, int], ...]
    """For each place, whether an init container has the command, and its index."""

    def commands_of(self, pod: Pod) -> list[Sequence[str] | None]:
        """Return the commands of a pod that belong into the places."""
        inits, containers = pod.spec.init_containers or (), pod.spec.containers or ()
        return [(inits if init else containers)[i].command for init, i in self.places]

    def fill(self, commands: Sequence[Sequence[str] | None]) -> bytes:
        """Return the patch in base64, with commands in the places. No command may be empty."""
        parts = [self.texts[0]]
        for command, text in zip(commands, self.texts[1:], strict=True):
            parts += _base64_part(_encode(command)[1:-1]), text
        return b"".join(parts)


def encode_template(operations: Sequence[dict[str, object]]) -> PatchTemplate:
    """Return the template of operations whose values contain results of `received_command`."""
    *parts, last = _encode(operations).split(_MARK)
    places = [part.split(b"/") for part in parts[1::2]]
    return PatchTemplate(
        (*map(_base64_part, parts[::2]), b2a_base64(last, newline=False)),
        tuple([(where == b"initContainers", int(i)) for where, i in places]),
    )


def _base64_part(json: bytes) -> bytes:
    """Return the begin of a JSON text in base64, so that the rest can be encoded apart.

    Four characters of base64 stand for three bytes. JSON allows spaces between two values.
    """
    return b2a_base64(json + b"  "[: -len(json) % 3], newline=False)
