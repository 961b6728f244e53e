"""Whether a program may lose the capabilities of its file behind the helper.

`allowPrivilegeEscalation: false` sets no_new_privs. The kernel then limits the capabilities that a
program gets from its file to those that its caller has (Linux `security/commoncap.c`). A container
runtime has those of the container when it starts the first program. The helper, as a user other
than root, has none when it starts the next one. So ingress-nginx and CoreDNS could no longer bind
the ports 80 and 53. A shell is no other case than before: it starts the same program in any case.
"""

from __future__ import annotations

from webhook.core.decision_input import ContainerFacts, PodFacts
from webhook.core.pod import Capabilities

_PREFIX = "CAP_"
_ALL = "ALL"
_DEFAULT = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
"""The capabilities of a container that sets none, on containerd (`pkg/oci/spec.go`). Those of CRI-O
are among them (`internal/config/capabilities`)."""


def may_be_lost(pod: PodFacts, container: ContainerFacts) -> bool:
    """Return whether a program of the container may lose capabilities of its file.

    The container's image is unknown: it decides about the user if the pod does not, and only it
    knows whether a file has capabilities.
    """
    security = container.security_context
    if security is None or security.allow_privilege_escalation is not False:
        return False
    user = security.run_as_user
    if user is None and pod.security_context is not None:
        user = pod.security_context.run_as_user
    return user != 0 and _has_some(security.capabilities or Capabilities())


def _has_some(capabilities: Capabilities) -> bool:
    """Return whether a container has a capability on one of the runtimes.

    containerd and CRI-O take names in any case, and first apply `ALL`, then what is added, then
    what is dropped. CRI-O takes a name with `CAP_` as the same name. containerd puts `CAP_` in
    front of it again, so that it means nothing (containerd `internal/cri/opts/spec_opts.go`, cri-o
    `internal/factory/container/container.go`).
    """
    added = {name.upper() for name in capabilities.add or ()}
    dropped = {name.upper() for name in capabilities.drop or ()}
    if _ALL in dropped:
        given = added - {_ALL}
    elif _ALL in added:
        return True
    else:
        given = added | _DEFAULT
    return not {name.removeprefix(_PREFIX) for name in given} <= dropped
