"""The command `podsettle certs`, which creates a development CA and a server certificate."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from webhook.cli.echo import echo
from webhook.cli.options import CERTS_DIR, InputError
from webhook.tls.certificate_directory import CertificateDirectory, CertificateError
from webhook.tls.development_certificates import DEVELOPMENT_NAMES, ensure_development_certificates
from webhook.tls.issuing import alternative_names

# A DNS name, which may begin with a wildcard, or an IP address.
_HOST = re.compile(r"[A-Za-z0-9*]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


@click.command()
@click.option("--certs-dir", **CERTS_DIR, show_envvar=True)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Another DNS name or IP address of the server. Can be repeated.",
)
def certs(certs_dir: Path, names: tuple[str, ...]) -> None:
    """Create ca.crt, tls.crt and tls.key for this machine, unless valid ones exist.

    The files are for development. The CA's key is discarded after it has signed the certificate.
    """
    for name in names:
        if not _HOST.fullmatch(name):
            raise InputError(f"--name: {name!r} is neither a DNS name nor an IP address")
    directory = CertificateDirectory(certs_dir)
    had_ca = os.path.exists(directory.ca)
    try:
        created = ensure_development_certificates(directory, (*DEVELOPMENT_NAMES, *names))
        leaf = directory.load()
    except CertificateError as error:
        raise InputError(str(error)) from None
    verb, expiry = "made" if created else "kept", leaf.not_valid_after_utc
    hosts = ", ".join(alternative_names(leaf))
    echo(f"{verb} {directory.certificate} for {hosts}, valid until {expiry:%Y-%m-%d}")
    echo(f"let clients trust {directory.ca}")
    if created and had_ca:
        echo("the CA is new: copy it to clients and webhook configurations again")
