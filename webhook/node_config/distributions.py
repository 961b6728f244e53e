"""Configuration of containerd for distributions that write its files themselves.

These distributions merge what an operator gives them into their own file. So the drop-in is printed
without its line `version`, which is that of the distribution's file.
"""

from __future__ import annotations

import re
import textwrap
from enum import StrEnum


class Distribution(StrEnum):
    """A distribution that takes the configuration in a form of its own."""

    EKS = "eks"
    TALOS = "talos"


_APPLY = {
    Distribution.EKS: (
        "For the user data of the node pool, as a part with the content type "
        "application/node.eks.aws. New nodes get it."
    ),
    Distribution.TALOS: (
        "A machine configuration patch: talosctl patch machineconfig --mode reboot --patch @FILE"
    ),
}
# nodeadm puts a text without the names of version 3 into its own file of version 2, and then
# migrates the file. With `version = 3` in the text, containerd 2.0 to 2.2 migrates nothing, and
# ignores SystemdCgroup, the registries and the pause image (amazon-eks-ami,
# nodeadm/internal/containerd/config.go).
_VOLATILE = {
    Distribution.EKS: """\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  containerd:
    config: |
{table}""",
    # Talos 1.13 and older merges one part of this name only (`CRICustomizationConfigPart`). 1.14
    # takes it too, although it has a CRICustomizationConfig (talos PR 13817).
    Distribution.TALOS: """\
machine:
  files:
  - path: /etc/cri/conf.d/20-customization.part
    op: create
    content: |
{table}""",
}
# Both distributions start containers from a base runtime spec. Limits in it take precedence over
# those of the runtime's service. Talos 1.14 refuses its form beside a CRIBaseRuntimeSpecConfig.
# Older releases do not have that.
_OPEN_FILES = {
    Distribution.EKS: """\
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  containerd:
    baseRuntimeSpec:
      process:
        rlimits:
        - {{type: RLIMIT_NOFILE, soft: {soft}, hard: {hard}}}
""",
    Distribution.TALOS: """\
machine:
  baseRuntimeSpecOverrides:
    process:
      rlimits:
      - {{type: RLIMIT_NOFILE, soft: {soft}, hard: {hard}}}
""",
}

_DEFAULT_NR_OPEN = 1_048_576
"""The kernel's default of fs.nr_open. systemd raises it, and Talos does not."""
_ABOVE_NR_OPEN = (
    "No container starts on a node whose sysctl fs.nr_open is below the hard limit. Talos has the "
    f"kernel's default, {_DEFAULT_NR_OPEN}, unless machine.sysctls raises it."
)


def volatile_document(distribution: Distribution, drop_in: str) -> str:
    """Return the YAML document that has the effect of a drop-in."""
    table = re.sub(r"\Aversion = \d+\n+", "", drop_in)
    document = _VOLATILE[distribution].format(table=textwrap.indent(table, " " * 6))
    return _comment(_APPLY[distribution]) + document


def open_files_document(distribution: Distribution, soft: int, hard: int) -> str:
    """Return the YAML document that gives every container these limits on open files."""
    warning = _comment(_ABOVE_NR_OPEN) if hard > _DEFAULT_NR_OPEN else ""
    document = _OPEN_FILES[distribution].format(soft=soft, hard=hard)
    return _comment(_APPLY[distribution]) + warning + document


def _comment(text: str) -> str:
    return textwrap.fill(text, 98, initial_indent="# ", subsequent_indent="# ") + "\n"
