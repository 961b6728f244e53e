"""Test of a release's chart and manifest: the commands of docs/releasing.md settle a pod.

The registry of the release is on the node, and its images are those of the node.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from release.chart import package_chart, push_chart, write_manifests
from release.source import Release, commit_of, write_source
from tests.support.helm_release import Installation
from tests.support.markdown import Page
from tests.support.node.containerd import Containerd
from tests.support.node.images import directory
from tests.support.node.node import RealNode
from tests.support.node.node_pool import NodePool
from tests.support.node.registry_server import SECOND_ADDRESS as REGISTRY
from tests.support.node.registry_server import serve
from tests.support.page_commands import commands_of_script
from tests.support.paths import DOCS, ROOT
from webhook import __version__

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
REMOVE = """
kubectl delete -f install.yaml --ignore-not-found
kubectl delete namespace try --ignore-not-found
"""
# What the commands of each way contain.
WAYS = ("oci://", "install.yaml")


@pytest.fixture(scope="module")
def node(nodes: NodePool) -> Iterator[RealNode]:
    """A cluster without podsettle."""
    with nodes.own(Containerd("2.4")) as own:
        yield own


@pytest.fixture(scope="module")
def files(node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a release's files, while its registry is served."""
    made = tmp_path_factory.mktemp("release")
    shutil.copytree(directory(), made / "registry")
    release = Release(
        __version__, "https://repository.example/podsettle", REGISTRY, *commit_of(ROOT)
    )
    write_source(ROOT, release, made / "source")
    package = package_chart(made / "source", release, made)
    write_manifests(package, release, made)
    with serve(made / "registry", made / "registry.log", REGISTRY, writable=True):
        for name in ("podsettle", "linger"):
            url = f"http://{REGISTRY}/v2/{name}/manifests"
            headers = {"Accept": MANIFEST, "Content-Type": MANIFEST}
            manifest = httpx.get(f"{url}/{node.images.tag}", headers=headers).raise_for_status()
            httpx.put(
                f"{url}/{__version__}", content=manifest.content, headers=headers
            ).raise_for_status()
        push_chart(package, release)
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_release_settles_a_pod_by_seven_commands_of_the_page(
    way: str, node: RealNode, files: Path, tmp_path: Path
) -> None:
    section = Page(DOCS / "releasing.md").sections["Try a release"]
    blocks = [block.text for block in Page(DOCS / "releasing.md").blocks if block.text in section]
    (install,) = (text for text in blocks if way in text)
    (settle,) = (text for text in blocks if "kind: SettlePolicy" in text)
    page = install + settle
    assert len(commands_of_script(page)) == 7
    installation = Installation(node.cluster, tmp_path)
    assignments = f"cd {files}\nREGISTRY={REGISTRY}\nIMAGE={node.images.busybox}\n"
    installation.shell(assignments + REMOVE)
    before = time.monotonic()
    # The registry of the node speaks HTTP.
    printed = installation.shell(assignments + page.replace("oci://", "--plain-http oci://"))
    print(f"{way}: settled after {time.monotonic() - before:.0f} s")
    assert printed.splitlines()[-1].startswith("settled is kept alive for")
