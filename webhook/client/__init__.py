"""Reading from a cluster in spite of its races: what a program does that starts pods and wants to
know how they ended.

    async with await ApiServer.connect() as server:
        pod = PodName("ci", "step-1")
        await copy_logs(server, pod, sys.stdout.buffer.write, follow=True)
        ended = await wait_terminated(server, pod)
        print(ended.exit_code)

`connect` takes the cluster that kubectl would take. Both functions take the name of a container,
for pods that have several, and a `Backoff`. What they raise: `PodError` for what is wrong with the
pod, `ApiError` for what the API server refused, `Unreachable` where it cannot be reached any more;
the last two only once the back-off is spent or there is no sense in trying again. What is tried
again meanwhile is logged to `webhook.client`.

`podsettle wait` and `podsettle logs` are these two functions on a command line.
"""

from webhook.client.logs import copy_logs
from webhook.client.pod import (
    ContainerError,
    GaveUpError,
    NeverTerminatedError,
    NotAPodError,
    NotStartedError,
    PodDeletedError,
    PodError,
    PodName,
    PodNotFoundError,
)
from webhook.client.retry import Backoff, may_pass
from webhook.client.wait import Ended, wait_terminated
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable

__all__ = [
    "ApiError",
    "ApiServer",
    "Backoff",
    "ContainerError",
    "Ended",
    "GaveUpError",
    "NeverTerminatedError",
    "NotAPodError",
    "NotStartedError",
    "PodDeletedError",
    "PodError",
    "PodName",
    "PodNotFoundError",
    "Unreachable",
    "copy_logs",
    "may_pass",
    "wait_terminated",
]
