"""Printed commands, with the flags of the cluster and the user that a person chose."""

from __future__ import annotations

import shlex
from typing import NamedTuple, TypeAlias

Command: TypeAlias = tuple[tuple[str, ...], ...]
"""The programs of a pipe, each with its arguments as words that no shell has read."""


def kubectl(*words: str) -> Command:
    """Return a command of kubectl. `a + b` is a pipe from `a` to `b`."""
    return (("kubectl", *words),)


def podsettle(subcommand: str, *words: str) -> Command:
    """Return a command of podsettle. The subcommand is one that uses a cluster."""
    return (("podsettle", subcommand, *words),)


class ClusterFlags(NamedTuple):
    """The values of --kubeconfig, --context, --as and --as-group.

    None means the default of the program. The environment variable KUBECONFIG needs no flag,
    because printed commands have it too.
    """

    kubeconfig: str | None = None
    context: str | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()

    def command(self, command: Command) -> str:
        """Return a command for the shell whose programs use the chosen cluster.

        The programs are kubectl, helm, and the commands of podsettle that use a cluster. Each word
        is quoted, so that the shell passes it on as it is. The result for no program is empty.
        """
        programs = []
        for name, *words in command:
            # The flags come first, because what follows may end in a placeholder or be cut.
            begin = 1 if name == "podsettle" else 0
            programs.append(shlex.join((name, *words[:begin], *self.words(name), *words[begin:])))
        return " | ".join(programs)

    def words(self, name: str = "podsettle") -> list[str]:
        """Return the flags of a program."""
        # `helm --help` lists helm's own names of kubectl's flags.
        prefix, user = ("--kube-", "as-user") if name == "helm" else ("--", "as")
        chosen = [("--kubeconfig", self.kubeconfig), (f"{prefix}context", self.context)]
        chosen += [(f"{prefix}{user}", self.as_user)]
        flags = [f"{flag}={value}" for flag, value in chosen if value]
        return flags + [f"{prefix}as-group={group}" for group in self.as_groups]


NO_FLAGS = ClusterFlags()
"""The flags if the user chose no cluster, so that printed commands use the same one."""
