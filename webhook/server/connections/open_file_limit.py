"""The process's limit on open files, which must not be reached.

uvloop closes the listening socket, without a message, if it cannot accept a connection because of
this limit (`__uv_streamserver_on_listen`). `webhook.server.limits` bounds the number of
connections, so it suffices to raise the limit on open files above that number. Go programs raise
it, too.
"""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

_OTHER_FILES = 256
"""Files, pipes, and connections to the API server and to registries."""


def allow_sockets(count: int) -> None:
    """Raise the soft limit on open files, so that a number of sockets can be open.

    If the hard limit is lower, log a warning.
    """
    needed = count + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    possible = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    if possible < needed:
        log.warning(
            "open files: the hard limit of %d is too low for many clients: above it, podsettle may "
            "stop accepting connections; raise it to %d (ulimit -Hn)",
            hard,
            needed,
        )
