"""The served certificate: its expiry, and whether the API server trusts it."""

from __future__ import annotations

from datetime import datetime, timedelta

from webhook.cluster.unread import NotAllowedError
from webhook.inspect.cluster_flags import Command, kubectl
from webhook.inspect.doctor.checks.check import DoctorCheck
from webhook.inspect.doctor.checks.configuration import CONFIGURATION
from webhook.inspect.doctor.commands import helm_upgrade, json_patch
from webhook.inspect.doctor.model import Advice, Result, State, fault, ok, unknown, warning
from webhook.inspect.doctor.registration import wrong_address
from webhook.inspect.doctor.round_readings import Installed, Probe, lines_of

_SOON = timedelta(days=7)
"""The remaining lifetime that is a warning if podsettle does not renew the certificate itself."""
_RESTART_BY_ANNOTATION = {
    "cert-manager.io/inject-ca-from": kubectl(
        "-n", "cert-manager", "rollout", "restart", "deployment/cert-manager-cainjector"
    ),
    "service.beta.openshift.io/inject-cabundle": kubectl(
        "-n", "openshift-service-ca", "rollout", "restart", "deployment/service-ca"
    ),
}
"""The annotations of a webhook configuration into which another component injects the caBundle, and
the command that restarts this component. The component also issues the certificate."""


async def _check_certificate(installed: Installed) -> list[Result]:
    probes = await installed.probes()
    expiries = {probe.pod: expiry for probe in probes if (expiry := _expiry(probe)) is not None}
    failing = [each for each in lines_of(probes, "certificate") if each[1].mark == "-"]
    problems = [each for each in lines_of(probes, "certificate") if each[1].mark == "!"]
    if not expiries and not failing:
        return [unknown("no replica says which certificate it serves")]
    now = await installed.server_time()
    expired = sorted(pod for pod, expiry in expiries.items() if expiry <= now)
    if expired:
        earliest = min(expiries[pod] for pod in expired)
        what = f"{', '.join(expired)}: the certificate expired at {earliest}"
        return [Result(State.FAULT, what, await _replacement(installed))]
    if failing:
        text = "; ".join(f"{pod}: {line.note}" for pod, line in failing)
        return [Result(State.FAULT, text, await _replacement(installed))]
    results = [
        warning(
            f"{pod}: {line.note}",
            "podsettle cannot read or renew its certificate. If the Secret was deleted, this "
            "command creates it again.",
            helm_upgrade(installed.installation),
        )
        for pod, line in problems
    ]
    until = min(expiries.values())
    if until - now < _SOON and not installed.installation.is_self_managed:
        soon = f"the certificate expires at {until}"
        results.append(Result(State.WARNING, soon, await _replacement(installed)))
    return results or [ok(f"the certificate is valid until {until}")]


def _expiry(probe: Probe) -> datetime | None:
    """Return when the certificate of a replica expires. None if the replica does not say so."""
    certificate = probe.version.get("certificate")
    text = certificate.get("notAfter") if isinstance(certificate, dict) else None
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


async def _replacement(installed: Installed) -> Advice:
    """Return how to replace the certificate, which depends on who issues it."""
    installation = installed.installation
    namespace, secret = installation.namespace, installation.tls_secret
    if installation.is_self_managed:
        return Advice(
            "podsettle renews it once a replica holds the Lease and may write the Secret: see the "
            "lines lease and permissions. This command makes it issue a new CA and certificate.",
            (json_patch("secret", secret, [{"op": "remove", "path": "/data"}], namespace),),
        )
    if await _injector_restart(installed):
        return Advice(
            "The component that issued it issues a new one after its Secret is deleted.",
            (kubectl("-n", namespace, "delete", "secret", secret),),
        )
    files = ("--cert=tls.crt", "--key=tls.key")
    new = kubectl(
        "-n", namespace, "create", "secret", "tls", secret, *files, "--dry-run=client", "-o", "yaml"
    )
    return Advice(
        "Replace it by a certificate that the registered caBundle verifies. The kubelet takes up "
        "to two minutes to update the files in the pods.",
        (new + kubectl("apply", "--server-side", "--force-conflicts", "-f", "-"),),
    )


async def _injector_restart(installed: Installed) -> Command | None:
    """Return the command that restarts the component that injects the caBundle, or None.

    It is also None if the user must not read the configuration.
    """
    try:
        configuration = await installed.configuration()
    except NotAllowedError:
        return None
    annotations = ((configuration or {}).get("metadata") or {}).get("annotations") or {}
    commands = (each for key, each in _RESTART_BY_ANNOTATION.items() if key in annotations)
    return next(commands, None)


async def _check_trust(installed: Installed) -> list[Result]:
    lines = lines_of(await installed.probes(), "registration")
    if not lines:
        return [unknown("no replica checks whether the API server trusts it")]
    advice = await _bundle_advice(installed)
    distrusted: dict[str, list[str]] = {}
    reverted: dict[str, list[str]] = {}
    for pod, line in lines:
        if line.mark != "+":
            found = distrusted if line.mark == "-" else reverted
            found.setdefault(line.note, []).append(pod)
    if distrusted and await _calls_another_address(installed):
        return [unknown("the webhook calls another address: see reachability")]
    results = [
        Result(State.FAULT, f"the API server does not trust podsettle: {note}", advice)
        for note in distrusted
    ]
    results += [
        fault(
            f"{', '.join(pods)}: {note}",
            "podsettle cannot keep its webhooks up to date. Another tool may overwrite them: the "
            "field managers name it.",
            kubectl(
                "get",
                "mutatingwebhookconfiguration",
                installed.installation.configuration,
                *("--show-managed-fields", "-o", "yaml"),
            ),
        )
        for note, pods in reverted.items()
    ]
    return results or [ok("the registered caBundle verifies the certificate of every replica")]


async def _calls_another_address(installed: Installed) -> bool:
    """Return whether the webhook names an address that the certificate cannot be for."""
    try:
        configuration = await installed.configuration()
    except NotAllowedError:
        return False
    return any(wrong_address(configuration or {}, installed.installation))


async def _bundle_advice(installed: Installed) -> Advice:
    """Return how to correct the caBundle, which depends on who registers it."""
    installation = installed.installation
    if installation.is_self_managed:
        return Advice(
            "The replica that holds the Lease corrects the caBundle within a second. If it stays "
            "wrong, the lines lease, permissions and readiness say why."
        )
    if command := await _injector_restart(installed):
        return Advice("Another component injects the caBundle. Restart it.", (command,))
    return Advice(
        "Register the CA that signed the certificate.",
        (helm_upgrade(installation, "--set-file", "webhook.caBundle=ca.crt"),),
    )


CERTIFICATE = DoctorCheck(
    "certificate", "whether the certificate of each replica is valid", _check_certificate
)
TRUST = DoctorCheck(
    "caBundle",
    "whether the API server trusts the certificate of each replica",
    _check_trust,
    blocked_by=(CONFIGURATION.name, CERTIFICATE.name),
)
