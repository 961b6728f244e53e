"""A webhook that starts commands by a program of its own, as vault-secrets-webhook of bank-vaults
does (`pkg/webhook/pod.go` of its 1.23.1)."""

from __future__ import annotations

import json

from tests.support.kube.cluster import Json

PROGRAM = "/vault/vault-env"
_VOLUME = "vault-env"
_COPYING: Json = {
    "name": "copy-vault-env",
    "image": "registry.example/bank-vaults/vault-env:1",
    "command": ["sh", "-c", "cp /usr/local/bin/vault-env /vault/"],
    "volumeMounts": [{"name": _VOLUME, "mountPath": "/vault/"}],
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    "resources": {
        "requests": {"cpu": "100m", "memory": "256Mi"},
        "limits": {"cpu": "500m", "memory": "256Mi"},
    },
}
FROM_PATH = "vault.security.banzaicloud.io/vault-env-from-path"
"""The annotation with which it changes every container. Otherwise, only those with a variable whose
value begins with `vault:`."""


def operations_for(pod: Json) -> list[Json]:
    """Return the operations with which it answers. A pod with its volume stays as it is."""
    spec = json.loads(json.dumps(pod["spec"]))
    if any(volume["name"] == _VOLUME for volume in spec.get("volumes") or ()):
        return []
    every = FROM_PATH in (pod["metadata"].get("annotations") or {})
    changed = False
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        values = [variable.get("value", "") for variable in container.get("env") or ()]
        if every or any(value.startswith("vault:") for value in values):
            changed = True
            args = [*(container.get("command") or ()), *(container.get("args") or ())]
            mounts = [*(container.get("volumeMounts") or ()), *_COPYING["volumeMounts"]]
            container |= {"command": [PROGRAM], "args": args, "volumeMounts": mounts}
    if not changed:
        return []
    spec["initContainers"] = [_COPYING, *(spec.get("initContainers") or ())]
    spec["volumes"] = [
        *(spec.get("volumes") or ()),
        {"name": _VOLUME, "emptyDir": {"medium": "Memory"}},
    ]
    return [{"op": "replace", "path": "/spec", "value": spec}]
