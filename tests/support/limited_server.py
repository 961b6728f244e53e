"""A server process with the limits of a test.

`podsettle serve` has no options for its limits, and a test cannot wait for the default ones. The
process runs this module with the arguments DIRECTORY PORT WEB_PORT TOKENS LIMITS.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import CHART, EXAMPLES, ROOT
from tests.support.process import (
    RunningServer,
    free_port,
    process_status,
    run_server,
    write_certificates,
)
from tests.support.server_fixtures import make_components
from webhook.cluster.access_decision import Access, AccessDecision
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.server.drain import Drain
from webhook.server.limits import Limits, PreviewLimits
from webhook.server.run import listen, serve
from webhook.tls.certificate_directory import CertificateDirectory
from webhook.tls.file_source import FileSource

KIB = 1024
MIB = KIB * KIB
_HOUR_SECONDS = 3600
_CLOSING = ("close_timeout_seconds", "shutdown_idle_timeout_seconds")
"""Times that begin when another limit has ended the abuse, or that end no abuse."""


@contextmanager
def limited_server(
    directory: Path, *, checks_tokens: bool = False, **limits: Any
) -> Iterator[RunningServer]:
    """Run a server on the examples' policies with some limits, and with no other timeouts.

    If it checks tokens, it accepts none.

    All other timeouts are an hour, so that none of them ends an abuse in place of a given limit. At
    the end, fail if the process has used more memory than the chart allows.
    """
    write_certificates(directory)
    port, web_port = free_port(), free_port()
    given = json.dumps(_hours(Limits) | {"preview": _hours(PreviewLimits)} | limits)
    tokens = str(int(checks_tokens))
    command = [
        sys.executable,
        "-m",
        __name__,
        str(directory),
        str(port),
        str(web_port),
        tokens,
        given,
    ]
    environment = {"PYTHONPATH": str(ROOT)}
    with run_server(command, directory, port, web_port, environment) as server:
        yield server
        assert peak_memory_bytes(server) < memory_limit_bytes()


def _hours(limits: type) -> dict[str, int]:
    """Return an hour for each timeout of a class of limits."""
    return {
        field.name: _HOUR_SECONDS
        for field in fields(limits)
        if field.name.endswith("_seconds") and field.name not in _CLOSING
    }


def peak_memory_bytes(server: RunningServer) -> int:
    """Return the largest resident memory that the process has had."""
    return int(process_status(server.process.pid, "VmHWM").removesuffix(" kB")) * KIB


def memory_limit_bytes() -> int:
    """Return the memory limit of podsettle's container in the chart."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    limit: str = values["resources"]["limits"]["memory"]
    assert limit.endswith("Mi")
    return int(limit.removesuffix("Mi")) * MIB


class NoAccess:
    """An authorizer that accepts no token."""

    async def authorize(self, _token: str, _verb: str, _path: str, _client: str) -> AccessDecision:
        return AccessDecision(Access.UNAUTHENTICATED)


def main() -> None:
    """Serve until a signal."""
    directory, ports, given = Path(sys.argv[1]), sys.argv[2:4], json.loads(sys.argv[5])
    authorizer = NoAccess() if int(sys.argv[4]) else None
    preview = PreviewLimits(**given.pop("preview"))
    limits = replace(Limits(goaway_chance=0), preview=preview, **given)
    source = ManifestsSource(EXAMPLES)
    source.refresh()
    drain = Drain(idle_seconds=0, timeout_seconds=1)
    components = make_components(source, drain=drain, limits=limits, authorizer=authorizer)
    context = FileSource(CertificateDirectory(directory)).context
    listeners = (listen("127.0.0.1", int(port), "") for port in ports)
    serve(components, context, *listeners)


if __name__ == "__main__":
    main()
