"""An API for programs that start pods: it reads their logs and waits for their exit codes.

    async with await ApiServer.connect() as server:
        pod = PodName("ci", "step-1")
        await copy_logs(server, pod, sys.stdout.buffer.write, follow=True)
        termination = await wait_terminated(server, pod)
        print(termination.exit_code)

Both functions retry after races of the kubelet and after broken connections. `connect` uses the
same cluster as kubectl. Both functions take a `Backoff` and the name of a container.
The name is required for pods with several containers.

They raise `PodError` if the pod is the cause, `ApiError` if the API server refuses a request, and
`Unreachable` if the API server cannot be reached. They raise `ApiError` and `Unreachable` after
the last retry, or immediately if a retry cannot help. Retries are logged to the logger
`webhook.client`.

`podsettle wait` and `podsettle logs` call these two functions.
"""

from webhook.client.container_state import (
    ContainerError,
    GaveUpError,
    NeverTerminatedError,
    NoPreviousRunError,
    NotAPodError,
    NotStartedError,
    PodDeletedError,
    PodError,
    PodName,
    PodNotFoundError,
    WaitTimeoutError,
)
from webhook.client.container_termination import Termination, wait_terminated
from webhook.client.logs import copy_logs
from webhook.client.retry import Backoff, StreamSettings, is_retryable
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable

__all__ = [
    "ApiError",
    "ApiServer",
    "Backoff",
    "ContainerError",
    "GaveUpError",
    "NeverTerminatedError",
    "NoPreviousRunError",
    "NotAPodError",
    "NotStartedError",
    "PodDeletedError",
    "PodError",
    "PodName",
    "PodNotFoundError",
    "StreamSettings",
    "Termination",
    "Unreachable",
    "WaitTimeoutError",
    "copy_logs",
    "is_retryable",
    "wait_terminated",
]
