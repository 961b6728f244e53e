"""Test of the Job that docs/install.md has for clusters without a container engine.

The commands of the page run as they are. The node has no network, so a registry on it has the image
of buildah, which is Debian's. That buildah takes the base image from the registry, and pip the
packages from a directory of the base image.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.helm_release import Installation
from tests.support.markdown import Page
from tests.support.node.image_files import IMAGES
from tests.support.node.network import NODE_ADDRESS
from tests.support.node.node import RealNode
from tests.support.node.registry_server import serve
from tests.support.paths import DOCS
from tests.support.wheels import downloaded_wheels
from tools.base_image import PATH, copy_libraries, write_root_fs
from tools.buildah import Buildah
from tools.pythons import dockerfile_python
from webhook import __version__

PORT = 5001
PUSHED = f"{NODE_ADDRESS}:{PORT}"
"""The registry as pods reach it."""
PULLED = f"127.0.0.1:{PORT}"
"""The same registry as the runtime reaches it, without TLS."""
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'
WRAPPER = f"""#!/bin/sh
command=$1
shift
[ "$command" != build ] || set -- --build-arg=PYTHON={PUSHED}/python "$@"
exec /usr/bin/buildah "$command" "$@"
"""


def write_buildah(root: Path) -> None:
    """Write buildah and BusyBox."""
    IMAGES["busybox"].fill(root)
    found = shutil.which("buildah")
    assert found
    program = root / "usr/bin/buildah"
    program.parent.mkdir(parents=True)
    shutil.copy2(found, program)
    copy_libraries([program], root)
    wrapper = root / "bin/buildah"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    (root / "root").mkdir()
    (root / "var/tmp").mkdir(parents=True)
    configuration = root / "etc/containers"
    configuration.mkdir()
    (configuration / "policy.json").write_text(POLICY)
    registries = f'[[registry]]\nlocation = "{PUSHED}"\ninsecure = true\n'
    (configuration / "registries.conf").write_text(registries)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A registry with the images that the Job needs."""
    directory = tmp_path_factory.mktemp("build")
    for name in ("data", "buildah", "python"):
        (directory / name).mkdir()
    write_buildah(directory / "buildah")
    python = dockerfile_python() or Path(sys.executable)
    write_root_fs(directory / "python", python)
    wheels = downloaded_wheels(python, ("run", "build", "linger"))
    shutil.copytree(wheels, directory / "python/wheels")
    variables = (f"PATH={PATH}", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels")
    configuration = {
        "buildah": ("--env", "PATH=/bin:/usr/bin"),
        "python": tuple(word for each in variables for word in ("--env", each)),
    }
    # The directory /etc of the node's namespaces has no policy.
    policy = directory / ".config/containers/policy.json"
    policy.parent.mkdir(parents=True)
    policy.write_text(POLICY)
    environment = {"HOME": str(directory), "PATH": os.environ["PATH"]}
    buildah = Buildah(directory / "storage", environment)
    with serve(directory / "data", directory / "log", f"0.0.0.0:{PORT}", writable=True):
        for name, options in configuration.items():
            buildah.image_of_files(name, directory / name, *options)
            buildah("push", "--tls-verify=false", name, f"docker://{PULLED}/{name}")
        yield


@pytest.mark.usefixtures("registry")
def test_job_of_the_page_builds_and_pushes_images_that_run(node: RealNode, tmp_path: Path) -> None:
    blocks = Page(DOCS / "install.md").blocks
    (commands,) = (block.text for block in blocks if "kind: Job" in block.text)
    variables = {
        "REGISTRY": f"{PUSHED}/team",
        "REGISTRY_USER": "user",
        "REGISTRY_PASSWORD": "password",
        "BUILDAH": f"{PULLED}/buildah",
    }
    assignments = "".join(f"{name}={value}\n" for name, value in variables.items())
    Installation(node.cluster, tmp_path).shell(assignments + commands)
    job = node.cluster.kubectl("-n", "podsettle-build", "get", "job", "images").stdout
    logs = node.cluster.kubectl("-n", "podsettle-build", "logs", "job/images").stdout
    assert "Complete" in job, logs[-8000:]

    namespace = node.namespace("built-")
    printed = {}
    for name in ("podsettle", "linger"):
        image = f"{PULLED}/team/{name}:{__version__}"
        container = {"name": "main", "image": image, "args": ["--version"]}
        spec = {"restartPolicy": "Never", "containers": [container]}
        node.run_pod({"metadata": {"name": name, "namespace": namespace}, "spec": spec})
        printed[name] = node.logs(namespace, name, "main").strip()
    assert printed == {
        "podsettle": f"podsettle, version {__version__}",
        "linger": f"linger {__version__}",
    }
