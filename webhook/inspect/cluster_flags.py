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
        return " | ".join(shlex.join(self._with_flags(program)) for program in command)

    def _with_flags(self, program: tuple[str, ...]) -> tuple[str, ...]:
        # The flags come first, because what follows may end in a placeholder or be cut.
        end_of_name = 2 if program[0] == "podsettle" else 1
        return (*program[:end_of_name], *self._words_for(program[0]), *program[end_of_name:])

    def _words_for(self, name: str) -> tuple[str, ...]:
        # `helm --help` lists helm's own names of kubectl's flags.
        context, user, group = (
            ("--kube-context", "--kube-as-user", "--kube-as-group")
            if name == "helm"
            else ("--context", "--as", "--as-group")
        )
        chosen = (("--kubeconfig", self.kubeconfig), (context, self.context), (user, self.as_user))
        return (
            *(f"{flag}={value}" for flag, value in chosen if value),
            *(f"{group}={each}" for each in self.as_groups),
        )


NO_FLAGS = ClusterFlags()
"""The flags if the user chose no cluster, so that printed commands use the same one."""
