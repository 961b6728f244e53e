"""The place in a patch for the command that a pod has sent.

Of a command without a wrapper of podsettle, a decision reads the first string only. So it is made
without the rest, and holds for all pods that differ in the rest. Its patch contains a place for
each command that it wraps, and the command of the pod that is answered fills the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from webhook.core.pod import Pod

ContainerList: TypeAlias = Literal["initContainers", "containers"]

# JSON contains no such byte, not even inside of a text. So no value of a client can look like a
# place.
_MARK = b"\0"
_encode = msgspec.json.Encoder().encode


def received_command(where: ContainerList, index: int) -> msgspec.Raw:
    """Return the place for the strings of a container's command, as an item of a list."""
    return msgspec.Raw(b"%b%b/%d%b" % (_MARK, where.encode(), index, _MARK))


class PatchTemplate(NamedTuple):
    """A patch as JSON, with places for the commands of a pod."""

    texts: tuple[bytes, ...]
    """The JSON before, between and after the places."""
    places: tuple[tuple[bool, int], ...]
    """For each place, whether an init container has the command, and its index."""

    def commands_of(self, pod: Pod) -> list[Sequence[str] | None]:
        """Return the commands of a pod that belong into the places."""
        inits, containers = pod.spec.init_containers or (), pod.spec.containers or ()
        return [(inits if init else containers)[i].command for init, i in self.places]

    def fill(self, commands: Sequence[Sequence[str] | None]) -> bytes:
        """Return the patch as JSON, with commands in the places. No command may be empty."""
        parts = [self.texts[0]]
        for command, text in zip(commands, self.texts[1:], strict=True):
            parts += _encode(command)[1:-1], text
        return b"".join(parts)


def encode_template(operations: Sequence[dict[str, object]]) -> PatchTemplate:
    """Return the template of operations whose values contain results of `received_command`."""
    parts = _encode(operations).split(_MARK)
    places = [part.split(b"/") for part in parts[1::2]]
    return PatchTemplate(
        tuple(parts[::2]), tuple([(where == b"initContainers", int(i)) for where, i in places])
    )
