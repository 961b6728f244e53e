"""GitLab Runner, built from its source: `python -m tests.support.node.gitlab_build`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.support.node.image_files import IMAGES
from tests.support.node.registry_server import serve
from tests.support.process import free_port
from tools.buildah import Buildah
from tools.source_build import SourceBuild, build_go

# Later releases need modules that not every Go module proxy has.
RELEASE, SOURCE = "v17.9.3", "GITLAB_RUNNER_SOURCE"
HELPER, ENTRYPOINT = "gitlab-runner-helper", "entrypoint"
_STRIPPED = "-ldflags=-s -w"
# What the runner's own image of the helper has beside the helper. The other files are those of a
# distribution, such as /usr/bin/env.
_BUILD_SCRIPT = "#!/bin/bash\numask 0000\nexec /bin/bash\n"
_ENTRYPOINT = ["/bin/sh", "-c", 'echo entered; exec "$@"', "sh"]


def find_gitlab_runner() -> Path | None:
    """Return the runner's directory, or None if it is not built yet.

    It also has the data of a `registry` with the images HELPER and ENTRYPOINT.
    """
    return _BUILD.find(RELEASE)


def _make(tree: Path, output: Path) -> None:
    images, registry = output / "images", output / "registry"
    programs = images / HELPER / "usr/bin"
    for name in (HELPER, ENTRYPOINT):
        (images / name).mkdir(parents=True)
        IMAGES["bash"].fill(images / name)
    for package, directory in ((".", output), (f"./apps/{HELPER}", programs)):
        program = directory / (HELPER if directory == programs else "gitlab-runner")
        build_go(tree, package, program, _STRIPPED, environment={"CGO_ENABLED": "0"})
    script = programs / "gitlab-runner-build"
    script.write_text(_BUILD_SCRIPT)
    script.chmod(0o755)
    (programs / "env").symlink_to("/bin/env")
    registry.mkdir()
    buildah, address = Buildah(output / "storage"), f"127.0.0.1:{free_port()}"
    with serve(registry, output / "registry.log", address, writable=True):
        for name, options in (
            (HELPER, ("--env", "PATH=/usr/bin:/bin")),
            (ENTRYPOINT, ("--env", "PATH=/bin", "--entrypoint", json.dumps(_ENTRYPOINT))),
        ):
            local = buildah.image_of_files(f"localhost/{name}", images / name, *options)
            buildah("push", "--tls-verify=false", local, f"docker://{address}/{name}:{RELEASE}")
    for directory in (buildah.storage, images):
        shutil.rmtree(directory)


_BUILD = SourceBuild(
    name="gitlab-runner",
    address="https://gitlab.com/gitlab-org/gitlab-runner",
    variable=SOURCE,
    commits={RELEASE: "f69272483bc5c98022708d81d3b9c64da9cf36d0"},
    recipe=(_BUILD_SCRIPT, _ENTRYPOINT, "bash"),
    packages={"buildah": "buildah", "git": "git", "docker-registry": "docker-registry"},
    make=_make,
)

if __name__ == "__main__":
    _BUILD.main(RELEASE)
