"""The code of another commit, with the packages that it locks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import BenchError
from bench.servers import THIS_CODE, Code


@contextmanager
def checked_out(commit: str) -> Iterator[Code]:
    """Yield the code of another commit. Raises BenchError if there is no such commit.

    The packages are those of this environment if the other commit locks the same ones. Otherwise
    they are installed into an environment of its own.
    """
    with tempfile.TemporaryDirectory(prefix="podsettle-bench-") as parent:
        tree = Path(parent) / "tree"
        git = ("git", "-C", THIS_CODE.tree, "worktree")
        _run(*git, "add", "--detach", tree, commit)
        try:
            yield _installed(tree)
        finally:
            _run(*git, "remove", "--force", tree)


def _installed(tree: Path) -> Code:
    python = sys.executable
    locked = Path("requirements/run.txt")
    if (tree / locked).read_bytes() != (THIS_CODE.tree / locked).read_bytes():
        print("installing the packages of the other commit", file=sys.stderr, flush=True)
        _run(python, "-m", "venv", tree / ".venv")
        python = str(tree / ".venv/bin/python")
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        requirements = ("-r", tree / locked, "-r", tree / "requirements/build.txt")
        _run(*pip, "--require-hashes", *requirements)
        _run(*pip, "--no-deps", "--no-build-isolation", "--editable", tree)
    code = Code(tree, python)
    compile_modules(code)
    find = (python, "-P", "-c", "import webhook; print(webhook.__file__)")
    imported = _run(*find, code=code).strip()
    if not Path(imported).is_relative_to(tree):
        raise BenchError(f"Python imports {imported} in place of the code in {tree}")
    return code


def compile_modules(code: Code) -> None:
    """Write the byte code of a checkout, which podsettle's image contains too.

    Otherwise the first start would compile the modules, or every start, if PYTHONDONTWRITEBYTECODE
    is set.
    """
    _run(code.python, "-m", "compileall", "-q", code.tree / "webhook")


def _run(*command: str | Path, code: Code | None = None) -> str:
    """Run a command to its end and return its output. Raises BenchError if it fails."""
    ran = subprocess.run(
        list(map(str, command)),
        env={**os.environ, **(code.environment if code else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise BenchError(f"{' '.join(ran.args)}: {ran.stderr[-2000:]}")
    return ran.stdout
