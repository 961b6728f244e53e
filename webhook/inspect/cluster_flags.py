"""The flags with which printed commands reach the cluster that the user chose."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

_QUOTED = re.compile(r"('[^']*')")
_PROGRAM = re.compile(
    r"(?:^|(?<=[|;] )|(?<=\())"
    r"(?P<call>(?P<program>kubectl|helm|flux)"
    r"|podsettle (?:doctor|explain|export|preview|scan))(?= |$)"
)
"""A program that uses a cluster, where a command of the shell begins."""


class ClusterFlags(NamedTuple):
    """The values of --kubeconfig, --context, --as and --as-group.

    None means the default of the program. The environment variable KUBECONFIG needs no flag,
    because printed commands have it too.
    """

    kubeconfig: str | None = None
    context: str | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()

    def add_to(self, command: str) -> str:
        """Return a command for the shell whose programs use the chosen cluster."""
        # A text in quotes is no command. It is left out, and a NUL, which no command has, keeps its
        # place.
        quoted = iter(_QUOTED.findall(command))
        found = _PROGRAM.sub(self._call, _QUOTED.sub("\0", command))
        return re.sub("\0", lambda _: next(quoted), found)

    def _call(self, match: re.Match[str]) -> str:
        is_helm = match["program"] == "helm"
        context = "--kube-context" if is_helm else "--context"
        words = [match["call"]]
        if self.kubeconfig:
            words.append(f"--kubeconfig={shlex.quote(self.kubeconfig)}")
        if self.context:
            words.append(f"{context}={shlex.quote(self.context)}")
        if self.as_user:
            user = "--kube-as-user" if is_helm else "--as"
            words.append(f"{user}={shlex.quote(self.as_user)}")
        group = "--kube-as-group" if is_helm else "--as-group"
        words += [f"{group}={shlex.quote(each)}" for each in self.as_groups]
        return " ".join(words)


NO_FLAGS = ClusterFlags()
"""The flags if the user chose no cluster, so that printed commands use the same one."""
