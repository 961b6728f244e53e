"""A Hypothesis strategy for pods that an API server accepts, with what remedies read."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.factories import Json, in_shell
from webhook.core.cluster.nodes import WINDOWS_LABEL
from webhook.core.remedies.shell_wrapper import WRAPPER_LENGTH, exec_wrapper, with_limits, wrapper

_SCRIPT = ["-c", 'echo "$HOME"; true']
LIMITED = [*with_limits(exec_wrapper("sh"), 65_536, 524_288), "sh", *_SCRIPT]
"""A command that openFiles has wrapped. It ends as soon as it would without the wrapper."""
_BY_OTHER = ["sh", "-c", '. /secrets; exec "$@"', "-"]
"""What another webhook may put in front of a command."""
_USES_OF_VOLUME = st.sampled_from(
    [
        {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        {"volumeDevices": [{"name": "data", "devicePath": "/dev/data"}]},
    ]
)
"""How a container uses the volume `data`, if the pod has it."""
_COMMANDS = st.sampled_from(
    [
        None,
        ["/entrypoint", "$(A)", "é\"'\\\n\U0001f600"],
        ["sh"],
        ["/bin/sh", *_SCRIPT],
        ["/usr/local/bin/bash", *_SCRIPT],
        ["/bin/zsh", *_SCRIPT],
        ["/busybox/ash", "-c", ": podsettle; not the wrapper"],
        in_shell(["sh", *_SCRIPT], sleep_ms=10, min_lifetime_ms=500),
        in_shell(["sh", *_SCRIPT], sleep_ms=1, min_lifetime_ms=2),
        LIMITED,
        [*LIMITED[:WRAPPER_LENGTH], *in_shell(["sh", *_SCRIPT], sleep_ms=10, min_lifetime_ms=500)],
        [*with_limits(wrapper("sh", sleep_ms=10, min_lifetime_ms=500), 9, None), "sh", *_SCRIPT],
        ["/podsettle/linger", "--", "x"],
        ["sh", "-c", "trap 'exit 0' INT; true"],
        ["/bin/bash", "-c", "trap 'exit 0' INT; true"],
        ["sh", "-c", "trap 'exit 2' TERM; true"],
        [*_BY_OTHER, *in_shell(["sh", *_SCRIPT], sleep_ms=10, min_lifetime_ms=500)],
        [*_BY_OTHER, "/podsettle/linger", "--sleep", "10ms", "--", "x"],
        [*_BY_OTHER, "/podsettle/linger", "--open-files", "9", "--", "x"],
    ]
)
_ARGS = st.sampled_from(
    [
        ["a"],
        ["-c", "trap 'exit 0' 2"],
        in_shell(["sh", *_SCRIPT], sleep_ms=10, min_lifetime_ms=500),
        [*LIMITED],
    ]
)
_INIT_NAMES = [
    *("prepare", "place-scripts", "a", "b", "plugin-x", "sidecar-a"),
    *("istio-init", "linkerd-init", "podsettle-kubelet-gate"),
    *("proxyinit", "consul-connect-inject-init-web"),
]
_NAMES = ["main", "step-build", "plugin-y", "sidecar-b"]
_PROBE = {"exec": {"command": ["true"]}}
_RULES = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [255]}}]
_LEVEL = {"seLinuxOptions": {"level": "s0:c1,c2"}}
_TYPES = [{"seLinuxOptions": {"type": each}} for each in ("spc_t", "spc_t", "container_t")]
_OPTIONS: list[Json] = [{"windowsOptions": each} for each in ({}, {"runAsUserName": "u"})]
_ADDED_CAPABILITIES = [
    {"capabilities": {"add": added}}
    for added in ([], ["CHOWN"], ["CHOWN", "NET_ADMIN"], ["cap_net_raw"], ["ALL"])
]


def _objects(required: Json, **optional: st.SearchStrategy[object]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(required, optional=optional)


def _container(names: list[str], **optional: st.SearchStrategy[object]) -> st.SearchStrategy[Json]:
    return st.builds(
        lambda made, command: made if command is None else {**made, "command": command},
        _objects(
            {"name": st.sampled_from(names), "image": st.just("registry.example/app:1")},
            args=_ARGS,
            stdin=st.booleans(),
            tty=st.booleans(),
            use=_USES_OF_VOLUME,
            securityContext=st.sampled_from(
                [_LEVEL, _LEVEL, *_TYPES, *_OPTIONS, *_ADDED_CAPABILITIES]
            ),
            resources=st.sampled_from(
                [{"limits": {"memory": each}} for each in ("100Ki", "5Mi", "64Mi")]
            ),
            **optional,
        ),
        _COMMANDS,
    )


_INIT_CONTAINER = _container(_INIT_NAMES, restartPolicy=st.just("Always")) | _container(
    _INIT_NAMES,
    restart=st.just({"restartPolicy": "Never", "restartPolicyRules": _RULES}),
)
_REGULAR_CONTAINER = _container(
    _NAMES,
    livenessProbe=st.just(_PROBE),
    readinessProbe=st.just(_PROBE),
    startupProbe=st.just(_PROBE),
)
_CLAIM_TEMPLATE = {
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
}
_VOLUMES = st.sampled_from(
    [
        [],
        [{"name": "data", "emptyDir": {}}],
        [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        [{"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}],
        [
            {"name": "tmp", "emptyDir": {}},
            {"name": "data", "ephemeral": {"volumeClaimTemplate": _CLAIM_TEMPLATE}},
        ],
    ]
)
_SECURITY = _objects(
    {},
    fsGroup=st.just(1000),
    fsGroupChangePolicy=st.sampled_from(["Always", "OnRootMismatch"]),
    seLinuxChangePolicy=st.sampled_from(["Recursive", "MountOption"]),
    windowsOptions=st.sampled_from([{}, {}, {"runAsUserName": "u"}]),
    seLinuxOptions=st.sampled_from([{"type": "spc_t"}, {"level": "s0:c3,c4"}, {"user": "u"}]),
)
_OS_KEYS = ["kubernetes.io/os", "beta.kubernetes.io/os"]
_TERM = st.builds(
    lambda key, operator, values: {
        "matchExpressions": [{"key": key, "operator": operator, "values": values}]
    },
    st.sampled_from([*_OS_KEYS, WINDOWS_LABEL, "disk"]),
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from([["windows"], ["linux"], ["linux", "windows"]]),
)
_AFFINITY = st.lists(_TERM, min_size=1, max_size=2).map(
    lambda terms: {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }
)
_ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            "podsettle.dev/skip",
            "podsettle.dev/skip",
            "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel",
            "try-skip-volume-selinux-label.crio.io",
            "kubernetes.io/config.mirror",
            "userns-mode.crio.io",
            "io.kubernetes.cri-o.Devices",
            "io.openshift.builder",
            "example.com/a~b",
        ]
    ),
    st.sampled_from(["true", " true ", "false", "", "postInitSleep, runtimeClass", "é~/,"]),
    max_size=2,
)
_LABELS = st.dictionaries(
    st.sampled_from(["app", "team", "woodpecker-ci.org/step", "tekton.dev/taskRun"]),
    st.sampled_from(["a", "b", ""]),
    max_size=3,
)


def _pod(annotations: Json | None, labels: Json, spec: Json) -> Json:
    metadata: Json = {"name": "generated", "labels": labels}
    if annotations is not None:
        metadata["annotations"] = annotations
    names = {each["name"] for each in spec["volumes"]}
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        container.update(container.pop("restart", {}))
        use = container.pop("use", {})
        if "data" in names:
            container.update(use)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


API_PODS = st.builds(
    _pod,
    st.none() | _ANNOTATIONS,
    _LABELS,
    _objects(
        {
            "containers": st.lists(
                _REGULAR_CONTAINER, min_size=1, max_size=3, unique_by=lambda each: each["name"]
            ),
            "restartPolicy": st.sampled_from(["Never", "Never", "OnFailure", "Always"]),
            "volumes": _VOLUMES,
        },
        initContainers=st.lists(_INIT_CONTAINER, max_size=6, unique_by=lambda each: each["name"]),
        securityContext=_SECURITY,
        runtimeClassName=st.sampled_from(["heavy", "selinux-fix-runtime-class"]),
        nodeSelector=st.dictionaries(
            st.sampled_from([*_OS_KEYS, WINDOWS_LABEL, "rootfs", "heavy"]),
            st.sampled_from(["linux", "windows", "true", "volatile"]),
            max_size=2,
        ),
        nodeName=st.just("n1"),
        affinity=_AFFINITY,
        os=st.just({"name": "linux"}),
    ),
)
"""Pods without a namespace. An API server refuses some of them, whatever podsettle does."""
