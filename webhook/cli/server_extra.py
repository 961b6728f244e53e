"""The commands that need the extra `server`, and what they say where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

import click

SERVER_COMMANDS = frozenset(("serve", "certs"))
SERVER_PACKAGES = ("cryptography", "fastapi", "h11", "prometheus_client", "starlette", "uvicorn")
"""The packages of the extra that exist on every platform, by the names under which they are
imported."""


def missing_extra() -> str:
    """Return which packages of the extra are not installed, and what to do. Empty if all are."""
    missing = [name for name in SERVER_PACKAGES if find_spec(name) is None]
    if not missing:
        return ""
    return (
        f"not installed: {', '.join(missing)}: install podsettle with its extra 'server', "
        "such as pip install '.[server]' in a checkout"
    )


def refusing_command(name: str, reason: str) -> click.Command:
    """Return a command that accepts all arguments, and ends with exit code 2 and the reason."""

    def refuse() -> None:
        from webhook.cli.options import InputError

        raise InputError(f"{name}: {reason}")

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, settings, refuse, help=reason, add_help_option=False)
