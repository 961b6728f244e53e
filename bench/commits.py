"""The code of another commit, with the packages that it locks."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.commands import BenchError, run
from bench.servers import THIS_CODE, Code


def install(tree: Path) -> Code:
    """Return the code of a checkout of another commit.

    The packages are those of this environment if the other commit locks the same ones. Otherwise
    they are installed into an environment of its own.
    """
    python = sys.executable
    locked = Path("requirements/run.txt")
    if (tree / locked).read_bytes() != (THIS_CODE.tree / locked).read_bytes():
        print("installing the packages of the other commit", file=sys.stderr, flush=True)
        run(python, "-m", "venv", tree / ".venv")
        python = str(tree / ".venv/bin/python")
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        requirements = ("-r", tree / locked, "-r", tree / "requirements/build.txt")
        run(*pip, "--require-hashes", *requirements)
        run(*pip, "--no-deps", "--no-build-isolation", "--editable", tree)
    code = Code(tree, python)
    compile_modules(code)
    find = (python, "-P", "-c", "import webhook; print(webhook.__file__)")
    imported = run(*find, environment=code.environment).strip()
    if not Path(imported).is_relative_to(tree):
        raise BenchError(f"Python imports {imported} in place of the code in {tree}")
    return code


def compile_modules(code: Code) -> None:
    """Write the byte code of a checkout, which podsettle's image contains too.

    Otherwise the first start would compile the modules, or every start, if PYTHONDONTWRITEBYTECODE
    is set.
    """
    run(code.python, "-m", "compileall", "-q", code.tree / "webhook")
