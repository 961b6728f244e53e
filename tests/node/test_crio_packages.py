"""What `podsettle node-config crio` prints, on a node made with CRI-O's own packages.

There conmon and crun are not in $PATH, and a handler inherits neither the monitor nor the smallest
memory limit nor the allowed annotations of the default handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import pytest
import yaml

from tests.support.kube.cluster import Json
from tests.support.kube.server import ServerError
from tests.support.node.crio import Crio
from tests.support.node.node import TIMEOUT_SECONDS, RealNode
from tests.support.node.node_pool import NodePool
from tests.support.node_config import CRIO, printed
from tests.support.waiting import await_that
from tools.crio import module_build
from webhook.node_config.crio import DROP_IN

CLASS = "selinux-fix-runtime-class"
HANDLER = "selinux-fix-runtime"
SKIP = "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel"
DEVICES = "devices.crio.io"
OLDEST = [(), *(("--oldest", release) for release in ("1.24.0", "1.29.4", "1.33.12", "1.36.3"))]
NEW = [each for each in OLDEST if each and each[1] in ("1.33.12", "1.36.3")]


class Case(NamedTuple):
    """Options of `node-config`, and whether the file of `crio status config` is given."""

    options: tuple[str, ...]
    copies: bool = False

    @property
    def has_handler(self) -> bool:
        return "workload" not in self.options


CASES = [
    *(Case(("--mode", "workload", *oldest)) for oldest in OLDEST),
    *(
        Case(("--mode", mode, *oldest), copies)
        for mode, releases in (("handler", OLDEST), ("default-annotations", NEW))
        for oldest in releases
        for copies in (False, True)
    ),
]


def name_of(case: Case) -> str:
    return " ".join((*case.options, *(("copied",) if case.copies else ())))


@pytest.fixture(scope="module")
def node(nodes: NodePool) -> Iterator[RealNode]:
    runtime = Crio(module_build(), packaged=True)
    runtime.add_drop_in("01-devices.conf", '[crio.runtime]\nallowed_devices = ["/dev/null"]\n')
    with nodes.own(runtime) as own:
        runtime_class = yaml.safe_load(printed(*CRIO, "-o", "runtimeclass"))
        own.cluster.create("/apis/node.k8s.io/v1/runtimeclasses", runtime_class)
        yield own


@pytest.fixture(scope="module")
def config_file(node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with what `crio status config` prints on the node without a drop-in."""
    file = tmp_path_factory.mktemp("config") / "node.toml"
    file.write_text(cast(Crio, node.runtime).status_config())
    return str(file)


@contextmanager
def configured(node: RealNode, drop_in: str) -> Iterator[None]:
    """Restart CRI-O with a drop-in."""
    runtime = cast(Crio, node.runtime)
    runtime.add_drop_in(Path(DROP_IN).name, drop_in)
    try:
        runtime.stop()
        runtime.start()
        yield
    finally:
        runtime.stop()
        runtime.remove_drop_in(Path(DROP_IN).name)
        runtime.start()


def handlers(node: RealNode) -> set[str]:
    return {each.get("name", "") for each in node.status().get("runtimeHandlers") or ()}


def running(node: RealNode, namespace: str, name: str, class_name: str | None) -> Json:
    """Run a pod with a small memory limit and an annotation for CRI-O, and return it."""
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {SKIP: "true", DEVICES: "/dev/null:/dev/other:r"},
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": node.images.busybox,
                    "command": ["sleep", "1000"],
                    "resources": {"limits": {"memory": "5Mi"}},
                }
            ],
        },
    }
    if class_name is not None:
        pod["spec"]["runtimeClassName"] = class_name
    node.create_pod(pod)
    return node.await_pod(
        namespace, name, lambda found: found["status"].get("phase") == "Running", TIMEOUT_SECONDS
    )


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_crio_starts_and_a_small_pod_runs_with_what_is_printed(
    node: RealNode, namespace: str, config_file: str, case: Case
) -> None:
    copying = ("--crio-config", config_file) if case.copies else ()
    with configured(node, printed(*CRIO, *case.options, *copying, "-o", "dropin")):
        await_that(
            lambda: (HANDLER in handlers(node)) == case.has_handler,
            "the node's status shows the handler",
            TIMEOUT_SECONDS,
        )
        class_name = CLASS if case.has_handler else None
        pod = running(node, namespace, "small", class_name)
        annotations = cast(Crio, node.runtime).sandbox_annotations(pod)
        keeps_devices = case.copies or not case.has_handler
        assert (DEVICES in annotations) == keeps_devices
        assert annotations.get(SKIP) == "true"


def test_crio_does_not_start_with_a_handler_that_names_no_monitor(node: RealNode) -> None:
    """This is why the printed handler does not inherit the default handler's settings."""
    table = f"[crio.runtime.runtimes.{HANDLER}]\ninherit_default_runtime = true\n"
    with (
        pytest.raises(ServerError, match="failed to translate monitor fields"),
        configured(node, table),
    ):
        pass
