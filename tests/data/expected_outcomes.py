"""What a postInitSleep for every container makes of each container in `tests/data/pods`."""

from __future__ import annotations

from collections.abc import Mapping

HELPER = "helper"
"""Wrapped by the helper, whatever the delivery."""
SHELL = "shell"
"""Wrapped by its own shell where the delivery is Auto, else by the helper."""

_TEKTON = {"prepare": HELPER, "place-scripts": SHELL}

OUTCOMES: Mapping[str, Mapping[str, str]] = {
    "arc-runner-dind": {"init-dind-externals": HELPER, "dind": "NativeSidecar", "runner": HELPER},
    "argo-workflow-initless": {"supervisor": HELPER, "main": HELPER},
    "gvisor-runtimeclass": {"fn": "NoCommand"},
    "hostnetwork-daemonset": {"": "ProtectedNamespace"},
    "job-indexed": {"fetch-shard": SHELL, "indexer": "NoCommand"},
    "kata-runtimeclass": {"unpack": HELPER, "run": HELPER},
    "large-40-containers": {
        **{f"init-{n}": SHELL for n in range(8)},
        **{f"worker-{n:02}": (SHELL, HELPER, "NoCommand")[n % 3] for n in range(40)},
    },
    "openshift-cronjob-pvc": {"sample-cron": SHELL},
    "statefulset-many-pvcs": {"chown-data": SHELL, "minio": "LongRunning"},
    "static-mirror": {"": "ProtectedNamespace"},
    "tekton-ready-immediately": {"prepare": HELPER, "step-name": HELPER},
    "tekton-taskrun-sidecar": {
        **_TEKTON,
        "step-checkout": HELPER,
        "step-unnamed-1": HELPER,
        "sidecar-server": "NativeSidecar",
    },
    "windows-tekton": {"": "WindowsPod"},
    "woodpecker-plugin-init-permission": {
        "init-wp-01he8bebctabr3kgk0qj36d2me-3": "NoCommand",
        "wp-01he8bebctabr3kgk0qj36d2me-3": "NoCommand",
    },
    "woodpecker-service": {"wp-svc-01he8bebctabr3kg-postgres": "NoCommand"},
    "woodpecker-step": {"wp-01he8bebctabr3kgk0qj36d2me-0": SHELL},
}
"""Container by container; for a pod that is left alone as a whole, its reason under no name."""
WRAPPED = (HELPER, SHELL)
