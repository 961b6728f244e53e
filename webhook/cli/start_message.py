"""The text that `podsettle serve` prints before it serves."""

from __future__ import annotations

import socket
from pathlib import Path

from webhook.cluster.source import Source
from webhook.tls.certificate_directory import CertificateDirectory

_WILDCARD_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104


def listening_line(
    host: str, listener: socket.socket, source: Source, service_name: str | None
) -> str:
    """Return the message of a server for a cluster.

    `service_name` is the DNS name of the Service, or None.
    """
    # On a machine without IPv6, the listener uses 0.0.0.0 instead of `::`. Show the address in use.
    address, port = listener.getsockname()[:2]
    where = (
        f"{_url(address, port)} (all addresses)"
        if host in _WILDCARD_ADDRESSES
        else _url(host, port)
    )
    service = f" as https://{service_name}" if service_name else ""
    return f"podsettle serves {where}{service} for the cluster at {source.title}"


def banner(
    host: str,
    listener: socket.socket,
    certs_dir: Path,
    source: Source,
    manifests: Path,
    *,
    needs_certificate: bool,
) -> str:
    """Return the message of a server without a cluster, with commands to try it.

    `needs_certificate` means that /mutate refuses clients without a certificate.
    """
    # The certificate does not contain a wildcard address, so clients could not verify its URL.
    url = _url("localhost" if host in _WILDCARD_ADDRESSES else host, listener.getsockname()[1])
    curl = f"curl -sS --cacert {CertificateDirectory(certs_dir).ca}"
    certificate = " --cert FILE --key FILE" if needs_certificate else ""
    policies = len(source.view.policies)
    count = "1 policy" if policies == 1 else f"{policies} policies"
    if source.problems:
        problems = "1 problem" if len(source.problems) == 1 else f"{len(source.problems)} problems"
        count += f" (objects with the {problems} above are left out)"
    review = next(iter(sorted(manifests.glob("reviews/*.json"))), Path("review.json"))
    pod = manifests / "pods" / f"{review.stem}.yaml"
    if not pod.exists():
        pod = Path("pod.yaml")
    return f"""\
podsettle serves {url} on {count} in {source.title}

  page      {url}/
  preview   {curl} --data-binary @{pod} {url}/preview \\
              | python3 -m json.tool | sed -nE '/"(detail|summary)":/p; /"outcomes":/,/^ *\\]/p'
  webhook   {curl}{certificate} -H 'Content-Type: application/json' \\
              --data @{review} {url}/mutate
"""


def _url(host: str, port: int) -> str:
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"
