"""The packages that a command or a process imports, each in a new Python process."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

HTTP_SERVER = ("fastapi", "prometheus_client", "starlette", "uvicorn")
HTTP_CLIENT = ("aiohttp", "kubernetes", "requests", "urllib3")
# Statements that put an object in the place of a package or of a part of it, or that inherit the
# undocumented attributes of uvicorn's protocols.
FORBIDDEN = re.compile(
    r"sys\.modules\[|sys\.modules\.setdefault|setdefault\(\"pydantic|"
    r"^class .*\b(HttpToolsProtocol|H11Protocol|AutoHTTPProtocol)\b"
)


def loaded_by(*modules: str) -> set[str]:
    """The top-level packages that a process has loaded after importing these modules."""
    code = f"import sys, {', '.join(modules)}\nprint(*{{n.split('.')[0] for n in sys.modules}})"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(process.stdout.split())


@pytest.mark.parametrize(
    ("modules", "unused"),
    [
        (("webhook.cli",), (*HTTP_SERVER, *HTTP_CLIENT, "asyncio", "pydantic", "ssl", "tenacity")),
        (("webhook.cli.logs",), (*HTTP_SERVER, *HTTP_CLIENT, "cryptography", "tenacity")),
        (("webhook.cli.scan",), (*HTTP_SERVER, *HTTP_CLIENT, "cryptography")),
        (
            ("webhook.cli.serve", "webhook.server.app", "webhook.server.run"),
            (*HTTP_CLIENT, "jsonpatch"),
        ),
        (
            ("webhook.server.preview.worker",),
            (
                *HTTP_SERVER,
                *HTTP_CLIENT,
                "asyncio",
                "click",
                "cryptography",
                "logging",
                "pydantic",
                "ssl",
            ),
        ),
    ],
    ids=["command line", "logs", "help of scan", "server on manifests", "preview worker"],
)
def test_process_imports_no_package_that_it_does_not_use(
    modules: tuple[str, ...], unused: tuple[str, ...]
) -> None:
    assert sorted(loaded_by(*modules) & set(unused)) == []


def test_no_module_replaces_a_package_or_inherits_from_a_protocol_of_uvicorn() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / "webhook").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if FORBIDDEN.search(line)
    ]
    assert found == []
