"""Hypothesis strategies for pods, policies, nodes and clusters."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from tests.support.factories import (
    IMAGE,
    MODERN,
    Json,
    in_shell,
    namespace,
    node,
    policy,
    runtime_class,
    view,
)
from tests.support.remedy_settings import settings_of
from webhook.core import remedies as registry
from webhook.core.admission.decider import OperatorSettings
from webhook.core.constants import DNS_LABEL, DNS_SUBDOMAIN
from webhook.core.defects.versions import Version
from webhook.core.durations import DURATION_PATTERN
from webhook.core.globs import CONTAINER_GLOB_PATTERN
from webhook.core.labels import LABEL_PAIR_PATTERN
from webhook.core.pod import ContainerFields, SecurityContext, SpecFields
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.validation_errors import InvalidPolicyError
from webhook.core.remedies.start_targets import DNS_PATTERN, HTTP_PATTERN, TCP_PATTERN

HELPER = "podsettle-linger"
GATE = "podsettle-kubelet-gate"
START_GATE = "podsettle-start-gate"
HELPER_PATH = "/podsettle/linger"
OWN_ANNOTATIONS = {
    "podsettle.dev/applied",
    "podsettle.dev/settled",
    "podsettle.dev/summary",
    "podsettle.dev/skipped",
    "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel",
    "try-skip-volume-selinux-label.crio.io",
}
TEXTS = st.text('ab1/~.-_ "\\\n$é\U0001f600', max_size=6)
LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6) | TEXTS
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
UNKNOWN = st.dictionaries(TEXTS.map(lambda text: f"x-{text}"), JUNK, max_size=2)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, values, values, st.none())


@st.composite
def objects(
    draw: st.DrawFn, /, required: dict[str, Any] | None = None, **optional: st.SearchStrategy[Any]
) -> Json:
    """A mapping with some of the optional fields, some of them null, and unknown ones."""
    known = st.fixed_dictionaries(
        required or {}, optional={key: maybe(value) for key, value in optional.items()}
    )
    return {**draw(UNKNOWN), **draw(known)}


BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    str: TEXTS,
    int: st.integers(0, 3),
}


def structs(
    struct: type[Any],
    required: dict[str, Any] | None = None,
    /,
    **optional: st.SearchStrategy[Any],
) -> st.SearchStrategy[Json]:
    """A mapping with the fields of a wire struct. Fields without a strategy get one by their type.

    Raises LookupError for such a field of another type.
    """
    further = {}
    for field in msgspec.structs.fields(struct):
        if field.encode_name in {**(required or {}), **optional}:
            continue
        (kind, *_) = get_args(field.type) or (field.type,)
        if kind not in BY_TYPE:
            raise LookupError(
                f"{struct.__name__}.{field.name}: no strategy for its type {kind}; "
                f"add one to {__name__}"
            )
        further[field.encode_name] = BY_TYPE[kind]
    return objects(required, **optional, **further)


QUANTITIES = st.sampled_from(["5m", "1", 2, "5Mi", "1Gi", "0.5"])
RESOURCE_NAMES = ["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi"]
AMOUNTS = st.dictionaries(st.sampled_from(RESOURCE_NAMES), QUANTITIES, max_size=3)
RESOURCES = objects(limits=AMOUNTS, requests=AMOUNTS)
SELINUX = objects(level=st.sampled_from(["", "s0:c1,c2"]), type=st.sampled_from(["spc_t", "x_t"]))
SECURITY = structs(
    SecurityContext,
    capabilities=objects(
        add=st.lists(st.sampled_from(["CHOWN", "NET_ADMIN", "cap_net_raw", "ALL"]), max_size=2),
        drop=st.lists(st.sampled_from(["ALL", "all", "NET_RAW", "CHOWN", "x" * 99]), max_size=3),
    ),
    privileged=st.sampled_from([False, False, True]),
    runAsUser=st.sampled_from([0, 1000]),
    seLinuxOptions=SELINUX,
    seLinuxChangePolicy=st.sampled_from(["Recursive", "MountOption"]),
    fsGroupChangePolicy=st.sampled_from(["OnRootMismatch", "Always"]),
    windowsOptions=st.sampled_from([None, {}, {"hostProcess": True}]),
    seccompProfile=objects(type=st.sampled_from(["RuntimeDefault", "Unconfined"])),
)
RULES = st.lists(
    objects(
        {"action": st.sampled_from(["Restart", "RestartAllContainers"])},
        exitCodes=objects(
            {"operator": st.sampled_from(["In", "NotIn"])},
            values=st.lists(st.sampled_from([1, 255]), max_size=2),
        ),
    ),
    max_size=2,
)
COMMANDS = st.lists(TEXTS, max_size=3) | st.sampled_from(
    [
        ["/bin/sh", "-c", "x"],
        ["sh"],
        ["/init"],
        ["/entrypoint", "$(A)"],
        ["/linger"],
        ["/linger", "wait"],
        ["/vault/vault-env"],
        ["/init"],
        ["/bin/sh", "-c", "trap 'exit 0' INT; x"],
        [HELPER_PATH, "--", "x"],
        in_shell(["sh", "-c", "x"], sleep_ms=1, min_lifetime_ms=2),
    ]
)
ARGS = st.lists(TEXTS, max_size=2) | st.sampled_from(
    [
        # A webhook has put a program of its own in front of podsettle's wrapper.
        [HELPER_PATH, "--sleep", "10ms", "--min-lifetime", "500ms", "--", "x"],
        [HELPER_PATH, "--open-files", "9", "--", "x"],
        in_shell(["sh", "-c", "x"], sleep_ms=10, min_lifetime_ms=500),
        ["/linger", "install", HELPER_PATH],
        ["-c", "trap 'exit 0' INT"],
    ]
)
MOUNTS = st.lists(
    objects(
        {
            "name": st.sampled_from(["data", "tmp", HELPER]),
            "mountPath": st.sampled_from(["/data", "/tmp", "/podsettle", "/podsettle/"]),
        },
        readOnly=st.booleans(),
    ),
    max_size=2,
)
NAMES = st.sampled_from(
    [
        *("prepare", "a", "b", "main", "sidecar-x", "wp-1", "é/~", "", HELPER, GATE, START_GATE),
        *("istio-init", "istio-validation", "istio-proxy"),
        *("proxyinit", "linkerd-init", "linkerd-proxy", "consul-dataplane"),
    ]
)


IMAGES = st.sampled_from(
    [
        *("registry.example/app:1", "registry.example/app:2", "registry.example/app:latest"),
        *("other.example/istio/proxyv2:1.27", "busybox", "quay.io/a@sha256:0", ""),
    ]
)


def container_lists(least: int = 0) -> st.SearchStrategy[Any]:
    return st.lists(
        structs(
            ContainerFields,
            {"name": NAMES, "command": maybe(COMMANDS)},
            image=IMAGES,
            args=ARGS,
            env=UNKNOWN.map(lambda value: [value]),
            stdin=st.booleans(),
            tty=st.booleans(),
            restartPolicy=st.sampled_from(["Always", "Never"]),
            restartPolicyRules=RULES,
            volumeMounts=MOUNTS,
            resources=RESOURCES,
            securityContext=SECURITY,
            livenessProbe=UNKNOWN,
            readinessProbe=UNKNOWN,
            startupProbe=UNKNOWN,
        ),
        min_size=least,
        max_size=4,
        unique_by=lambda found: str(found["name"]),
    )


VOLUMES = st.lists(
    objects(
        {"name": st.sampled_from(["data", "tmp", HELPER])},
        emptyDir=UNKNOWN,
        image=UNKNOWN,
        persistentVolumeClaim=UNKNOWN,
        ephemeral=UNKNOWN,
        configMap=UNKNOWN,
    ),
    max_size=3,
    unique_by=lambda found: str(found["name"]),
)
ANNOTATIONS = st.dictionaries(TEXTS, TEXTS, max_size=2) | st.dictionaries(
    st.sampled_from(
        [
            *OWN_ANNOTATIONS,
            *("podsettle.dev/skip", "podsettle.dev/start-gate", "a/b~c", "userns-mode.crio.io"),
            "consul.hashicorp.com/redirect-traffic-config",
        ]
    ),
    st.sampled_from(
        ["true", "false", "", "p0/postInitSleep", "runtimeClass, x", "a:80, http://b/", "é,/~"]
    ),
    max_size=3,
)
NODE_SELECTORS = st.dictionaries(
    st.sampled_from(["disk", "kubernetes.io/os"]), st.sampled_from(["ssd", "linux"]), max_size=2
)
TERMS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.lists(
                st.fixed_dictionaries(
                    {
                        "key": st.sampled_from(["disk", "n"]),
                        "operator": st.sampled_from(["In", "NotIn", "Exists", "Gt", "Lt", "Odd"]),
                    },
                    optional={"values": st.lists(st.sampled_from(["ssd", "5"]), max_size=2)},
                ),
                max_size=2,
            )
        },
    ),
    max_size=2,
)
AFFINITIES = objects(
    nodeAffinity=objects(
        requiredDuringSchedulingIgnoredDuringExecution=objects(nodeSelectorTerms=TERMS)
    )
)
SPECS = structs(
    SpecFields,
    {
        "containers": container_lists(1),
        "initContainers": st.one_of(container_lists(2), maybe(container_lists())),
    },
    volumes=VOLUMES,
    restartPolicy=st.sampled_from(["Never", "Never", "OnFailure", "Always"]),
    hostNetwork=st.booleans(),
    priorityClassName=st.sampled_from(["high", "high", "system-node-critical"]),
    tolerations=st.lists(
        objects(key=st.sampled_from(["a", "a", ""]), operator=st.sampled_from(["Equal", "Exists"])),
        max_size=1,
    ),
    serviceAccountName=st.sampled_from(["default", "builder"]),
    imagePullSecrets=st.lists(objects(name=st.sampled_from(["a", "b"])), max_size=2),
    schedulerName=st.sampled_from(["default-scheduler", "another"]),
    runtimeClassName=st.sampled_from(["fast", "kata"]),
    overhead=st.dictionaries(st.just("cpu"), QUANTITIES),
    nodeName=st.sampled_from(["n1", "elsewhere"]),
    nodeSelector=NODE_SELECTORS,
    affinity=AFFINITIES,
    securityContext=SECURITY,
    os=st.just({"name": "linux"}),
    resources=RESOURCES,
)
LABELS = st.dictionaries(TEXTS, TEXTS, max_size=1) | st.dictionaries(
    st.sampled_from(["app", "team", "tekton.dev/taskRun", "podsettle.dev/skip"]),
    st.sampled_from(["a", "b", "true", ""]),
    max_size=3,
)
PODS = st.builds(
    lambda extra, metadata, spec: {**extra, "metadata": metadata, "spec": spec},
    UNKNOWN,
    objects(
        name=st.sampled_from(["p", "q"]),
        generateName=st.sampled_from(["p-", "q-"]),
        namespace=st.sampled_from(["ci", "qa"]),
        labels=LABELS,
        annotations=ANNOTATIONS,
        ownerReferences=st.lists(
            objects({"kind": st.sampled_from(["Job", "Job", "DaemonSet"])}), max_size=1
        ),
    ),
    SPECS,
)
VARIED_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": objects(
            name=st.sampled_from(["p", "q"]), labels=LABELS, annotations=ANNOTATIONS
        ),
        "spec": objects(
            serviceAccountName=st.sampled_from(["default", "builder"]),
            schedulerName=st.sampled_from(["default-scheduler", "another"]),
        ),
        "container": objects(
            image=IMAGES, command=COMMANDS, args=st.lists(TEXTS, max_size=2), volumeMounts=MOUNTS
        ),
    },
)
"""Fields in which pods of one template differ, by the object that has them."""


def with_fields(pod: Json, fields: Json) -> Json:
    """Return a copy of a pod with `VARIED_FIELDS`. Those of `container` go to each container."""
    of_containers = fields.get("container", {})
    spec = {**pod["spec"], **fields.get("spec", {})}
    for key in ("initContainers", "containers"):
        if spec.get(key):
            spec[key] = [{**each, **of_containers} for each in spec[key]]
    return {**pod, "metadata": {**pod["metadata"], **fields.get("metadata", {})}, "spec": spec}


INJECTED = objects(
    {
        "name": st.sampled_from(["injected", "injected", "istio-init", "istio-validation"]),
        "command": maybe(COMMANDS),
    },
    restartPolicy=st.sampled_from(["Always", "Never"]),
    volumeMounts=MOUNTS,
    resources=RESOURCES,
)
CLASSES = st.sampled_from(["fast", "slow", "gone"])
TEXTS_OF_SETTINGS = {
    DURATION_PATTERN: st.sampled_from(["0s", "100ms", "1.5s", "2s"]),
    CONTAINER_GLOB_PATTERN: st.sampled_from(["*", "*", "inj*", "a", "?", "prepare"]),
    f"^{DNS_LABEL}$": st.sampled_from(["prepare", "a", "b", "injected", GATE, START_GATE, HELPER]),
    f"^{DNS_SUBDOMAIN}$": CLASSES,
    LABEL_PAIR_PATTERN: st.sampled_from(["disk=ssd", "disk=none"]),
    TCP_PATTERN: st.sampled_from(["169.254.170.23:80", "[fd00:ec2::23]:80"]),
    HTTP_PATTERN: st.sampled_from(["http://a/", "http://b:8080/x?y"]),
    DNS_PATTERN: st.sampled_from(["a", "sts.example.com"]),
}


def is_valid(remedies: Json) -> bool:
    try:
        policy(remedies=remedies)
    except InvalidPolicyError:
        return False
    return True


REMEDIES = (
    st.sets(st.sampled_from(list(registry.REMEDIES)), min_size=1)
    .flatmap(
        lambda names: st.fixed_dictionaries(
            {
                name: settings_of(registry.REMEDIES[name], TEXTS_OF_SETTINGS)
                for name in sorted(names)
            }
        )
    )
    .filter(is_valid)
)


def _policies(specs: list[Json]) -> list[SettlePolicy]:
    return [policy(f"p{n}", **spec) for n, spec in enumerate(specs)]


NAMESPACES = ("ci", "qa", "kube-ci", "mcs")
"""The names of the namespaces in `VIEWS`, each with other facts or labels than the next."""
BY_NAME = {
    "matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [*NAMESPACES]}
    ]
}
POLICIES = st.lists(
    st.fixed_dictionaries(
        {"remedies": REMEDIES},
        optional={
            "priority": st.integers(-1, 1),
            "action": st.sampled_from(["Mutate", "Mutate", "Audit"]),
            "namespaceSelector": st.sampled_from(
                [{}, {}, {"matchLabels": {"team": "a"}}, BY_NAME, None]
            ),
            "podSelector": st.sampled_from([{}, {}, {"matchLabels": {"team": "a"}}]),
        },
    ),
    min_size=1,
    max_size=3,
).map(_policies)
NODES = st.lists(
    st.sampled_from(
        [
            node("n1", "cri-o://1.33.12", labels={"disk": "ssd"}),
            node("n2", "cri-o://1.36.0", "v1.36.0", {"n": "6"}),
            node("n3", "cri-o://1.33.12", labels={"disk": "ssd"}, handlers=["", "fast"]),
            node("n4", "containerd://2.1.5", "v1.36.0", handlers=["", "slow"]),
            MODERN,
        ]
    ),
    max_size=2,
)
KNOWN_CLASSES = st.sampled_from(
    [
        [],
        [runtime_class("fast"), runtime_class("slow")],
        [runtime_class("fast", {"cpu": "1"}, {"disk": "ssd"}), runtime_class("slow")],
    ]
)
NAMESPACE_LABELS = st.sampled_from(
    [{}, {"team": "a"}, *({"podsettle.dev/policy": name} for name in ("p0", "gone"))]
)
VIEWS = st.builds(
    lambda policies, nodes, classes, server, labels, others: view(
        *policies,
        nodes=nodes,
        classes=classes,
        server=server,
        namespaces=[
            namespace("ci", labels),
            namespace("qa", others),
            namespace("kube-ci", {"kubernetes.io/metadata.name": "kube-ci", **labels}),
            namespace("mcs", labels, {"openshift.io/sa.scc.mcs": "s0:c1,c2"}),
        ],
    ),
    POLICIES,
    NODES,
    KNOWN_CLASSES,
    st.sampled_from([None, Version(1, 33), Version(1, 36)]),
    NAMESPACE_LABELS,
    NAMESPACE_LABELS,
)
SETTINGS = st.builds(
    lambda image, url: OperatorSettings("own", image, url),
    st.sampled_from([IMAGE, IMAGE, "registry.example/podsettle/linger:0.1.0", None]),
    st.sampled_from([None, "https://docs.example/why"]),
)
