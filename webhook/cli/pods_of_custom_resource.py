"""The pods that another system has created for an object, such as Tekton for a TaskRun."""

from __future__ import annotations

from urllib.parse import urlencode

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError
from webhook.cluster.reflector import METADATA_ONLY
from webhook.cluster.rights import Right
from webhook.core.constants import OBJECT_NAME
from webhook.inspect.cluster_flags import ClusterFlags, podsettle

_MAX_PODS = 3


async def describe_created_pods(
    server: ApiServer, namespace: str, selector: str, flags: ClusterFlags
) -> str:
    """Return where the pods with some labels are, and how to ask about them, in a clause.

    `flags` are those of the printed command. The result is empty if there are none, and if the
    namespace has no valid name.
    """
    if not OBJECT_NAME.fullmatch(namespace):
        return ""
    query = urlencode({"labelSelector": selector, "limit": _MAX_PODS + 1})
    path = f"/api/v1/namespaces/{namespace}/pods?{query}"
    try:
        page = await server.page(path, METADATA_ONLY.format(list="List"))
    except ApiError as error:
        if error.status != 403:
            raise
        right = Right("list", "", "pods", namespace)
        return f"its pods were not looked for: it needs the right to {right}"
    names = [str(item["metadata"]["name"]) for item in page.items]
    if not names:
        return ""
    pods = ", ".join(f"{namespace}/{name}" for name in names[:_MAX_PODS])
    more = " and more" if len(names) > _MAX_PODS else ""
    verb = "pod is" if len(names) == 1 else "pods are"
    command = flags.command(podsettle("explain", f"pod/{names[0]}", "-n", namespace))
    return f"its {verb} {pods}{more}: {command}"
