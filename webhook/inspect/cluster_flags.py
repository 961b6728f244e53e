"""The flags with which printed commands reach the cluster that the user chose."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

_QUOTED = re.compile(r"('[^']*')")
_PROGRAM = re.compile(
    r"(?:^|(?<=[|;] )|(?<=\())"
    r"(?P<call>(?P<program>kubectl|helm|flux)|podsettle (?:doctor|explain|preview|scan))(?= |$)"
)
"""A program that uses a cluster, where a command of the shell begins."""


class ClusterFlags(NamedTuple):
    """The values of --kubeconfig and --context. None means the default of the program.

    The environment variable KUBECONFIG needs no flag, because printed commands have it too.
    """

    kubeconfig: str | None = None
    context: str | None = None

    def add_to(self, command: str) -> str:
        """Return a command for the shell whose programs use the chosen cluster."""
        # A text in quotes is no command. It is left out, and a NUL, which no command has, keeps its
        # place.
        quoted = iter(_QUOTED.findall(command))
        found = _PROGRAM.sub(self._call, _QUOTED.sub("\0", command))
        return re.sub("\0", lambda _: next(quoted), found)

    def _call(self, match: re.Match[str]) -> str:
        context = "--kube-context" if match["program"] == "helm" else "--context"
        words = [match["call"]]
        if self.kubeconfig:
            words.append(f"--kubeconfig={shlex.quote(self.kubeconfig)}")
        if self.context:
            words.append(f"{context}={shlex.quote(self.context)}")
        return " ".join(words)


NO_FLAGS = ClusterFlags()
"""The flags if the user chose no cluster, so that printed commands use the same one."""
