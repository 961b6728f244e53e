"""The installed CRD, compared with the CRD of this release."""

from __future__ import annotations

from webhook.cluster.rights import Right
from webhook.core.policy.crd import CRD_NAME
from webhook.core.policy.crd_comparison import CrdComparison
from webhook.core.policy.status_conditions import crd_note
from webhook.inspect.cluster_flags import NO_FLAGS, kubectl
from webhook.inspect.doctor.checks.check import DoctorCheck
from webhook.inspect.doctor.model import Result, fault, ok, warning
from webhook.inspect.doctor.round_readings import Installed

_APPLY = kubectl("apply", "--server-side", "--force-conflicts", "-f", "charts/podsettle/crds")


async def _check_crd(installed: Installed) -> list[Result]:
    right = Right("get", "apiextensions.k8s.io", "customresourcedefinitions", name=CRD_NAME)
    installed_crd = await installed.reader.get(right)
    if installed_crd is None:
        return [
            fault(
                f"CustomResourceDefinition {CRD_NAME} does not exist",
                "There can be no policies without it.",
                _APPLY,
            )
        ]
    difference = CrdComparison().difference(installed_crd)
    note = crd_note(difference).removesuffix(f": {NO_FLAGS.command(_APPLY)}")
    if difference.lacks:
        return [fault("it is older than this release", f"{note}.", _APPLY)]
    if difference.other_defaults:
        return [warning("it has other defaults than this release", f"{note}.", _APPLY)]
    return [ok("it has every field of this release")]


CRD = DoctorCheck("crd", f"whether CustomResourceDefinition {CRD_NAME} is current", _check_crd)
