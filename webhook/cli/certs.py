"""podsettle certs: a development CA and server certificate."""

from __future__ import annotations

from pathlib import Path

import click

from webhook.cli.options import InputError, certs_dir_option
from webhook.tls.files import (
    DEVELOPMENT_NAMES,
    CertificateDirectory,
    CertificateError,
    ensure_development_certificates,
)


@click.command()
@certs_dir_option
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="A further DNS name or IP address that the server is called by; may be repeated.",
)
def certs(certs_dir: Path, names: tuple[str, ...]) -> None:
    """Make ca.crt, tls.crt and tls.key for this machine, unless good ones are there.

    They are for development: the CA's key is thrown away once it has signed.
    """
    directory = CertificateDirectory(certs_dir)
    wanted = tuple(dict.fromkeys((*DEVELOPMENT_NAMES, *names)))
    try:
        made = ensure_development_certificates(directory, wanted)
        expiry = directory.load().not_valid_after_utc
    except (CertificateError, ValueError) as error:
        raise InputError(str(error)) from None
    verb = "made" if made else "kept"
    click.echo(
        f"{verb} {directory.certificate} for {', '.join(wanted)}, good until {expiry:%Y-%m-%d}"
    )
    click.echo(f"clients trust {directory.ca}")
