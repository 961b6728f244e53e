"""Print everything that a user of podsettle names, as sorted lines.

It describes the tree in the working directory, which may be another commit: `python listing.py`
with that tree as PYTHONPATH. So it imports nothing of this repository but the command line, reads
pages that are generated from the code, and asks a running server for the rest.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import click
import yaml

_CHART = Path("charts/podsettle")
# A string of the product's code that is a label, an annotation or the like: `DOMAIN/NAME`.
_KEY = re.compile(r"""["'](?:\{GROUP\}|[a-z0-9-]+(?:\.[a-z0-9-]+)+)/[A-Za-z][\w.-]*["']""")
_START_SECONDS = 120
_PODSETTLE = (sys.executable, "-c", "from webhook.cli import main; main()")


def listing() -> Iterator[str]:
    """Yield the lines, in no order."""
    from webhook.cli import main
    from webhook.core.reasons import Reason

    yield from _commands(main, click.Context(main, info_name="podsettle"))
    for reason in Reason:
        yield f"reason: {reason}: {'warns. ' if reason.warns else ''}{reason.meaning}"
    yield from (f"metrics: {row}" for row in _rows(Path("docs/metrics.md").read_text()))
    limits = re.search(
        r"(\| what is limited \|.*?)\n(?:\n|<!--)", Path("docs/http.md").read_text(), re.S
    )
    assert limits
    yield from (f"limit: {row}" for row in _rows(limits[1]))
    keys = (key for path in Path("webhook").rglob("*.py") for key in _KEY.findall(path.read_text()))
    yield from (f"label or annotation: {key[1:-1]}" for key in keys)
    schema = json.loads((_CHART / "values.schema.json").read_text())
    yield from (f"chart value: {line}" for line in _leaves(schema))
    values = yaml.safe_load((_CHART / "values.yaml").read_text())
    yield from (f"chart default: {line}" for line in _leaves(values))
    policy = json.loads(Path("docs/settlepolicy.schema.json").read_text())
    yield from (f"policy: {line}" for line in _leaves(policy))
    yield from _served()


def _commands(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the parameters of a command and of its subcommands, and its exit codes."""
    for parameter in command.get_params(context):
        about = parameter.to_info_dict()
        names = "/".join([*about["opts"], *about["secondary_opts"]])
        facts = {
            key: about.get(key)
            for key in ("envvar", "required", "multiple", "nargs", "is_flag", "type")
        }
        # Of a default that is a function, to_info_dict() returns the function.
        facts["default"] = parameter.get_default(context)
        yield f"command: {context.command_path} {names} {_dump(facts)}"
    help_text = " ".join((command.help or "").split())
    for sentence in re.split(r"(?<=\.) ", help_text):
        if "exit" in sentence.lower():
            yield f"exit code: {context.command_path}: {sentence}"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found
            yield from _commands(found, click.Context(found, info_name=name, parent=context))


def _rows(page: str) -> list[str]:
    """Return the rows of the tables in a Markdown page."""
    return [line for line in page.splitlines() if line.startswith("|")]


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each value in a document, with its path. Descriptions are left out."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            if key not in ("description", "title") or isinstance(inner, dict):
                yield from _leaves(inner, f"{path}/{key}")
    else:
        yield f"{path} {_dump(value)}"


def _served() -> Iterator[str]:
    """Start podsettle. Yield its OpenAPI document, and its answer to the review of the examples."""
    with socket.socket() as free, socket.socket() as free_for_web:
        free.bind(("127.0.0.1", 0))
        free_for_web.bind(("127.0.0.1", 0))
        port, web_port = (str(each.getsockname()[1]) for each in (free, free_for_web))
    with tempfile.TemporaryDirectory() as certs:
        options = ["--certs-dir", certs]
        subprocess.run([*_PODSETTLE, "certs", *options], check=True, stdout=subprocess.DEVNULL)
        options += ["--manifests", "examples", "--host", "127.0.0.1", "--port", port]
        log = Path(certs) / "log"
        with log.open("w") as output:
            command = [*_PODSETTLE, "serve", *options]
            # Commits before the web port answer everything on `--port`, and ignore the variable.
            variables = {**os.environ, "PODSETTLE_WEB_PORT": web_port}
            server = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
        trust = ssl.create_default_context(cafile=Path(certs) / "ca.crt")
        try:
            origins = [f"https://127.0.0.1:{each}" for each in (web_port, port)]
            origin, document = _wait_for_document(origins, trust, server, log)
            yield from (f"http: {line}" for line in _leaves(document))
            review = Path("examples/reviews/tekton-taskrun.json").read_bytes()
            request = Request(f"{origin}/mutate", review, {"Content-Type": "application/json"})
            response = json.load(urlopen(request, context=trust))["response"]
            response["patch"] = json.loads(base64.b64decode(response["patch"]))
            yield from (f"review: {line}" for line in _leaves(response))
        finally:
            server.terminate()
            server.wait()


def _wait_for_document(
    origins: list[str], trust: ssl.SSLContext, server: subprocess.Popen[bytes], log: Path
) -> tuple[str, Any]:
    """Return the OpenAPI document as soon as one of the origins has it, and this origin."""
    deadline = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        for origin in origins:
            with suppress(URLError):
                return origin, json.load(urlopen(f"{origin}/openapi.json", context=trust))
        time.sleep(0.1)
    sys.exit(f"podsettle does not start in {Path.cwd()}:\n{log.read_text()}")


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


if __name__ == "__main__":
    print("\n".join(sorted(set(listing()))))
