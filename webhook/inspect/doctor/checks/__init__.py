"""The checks of an installation, in the order in which they run.

To add a check:

1. Write an async generator in a module of this package. It gets an `Installed` and yields `ok`,
   `fault`, `warning` or `unknown` of `model.py`. It may raise what requests raise.
2. Add a line to `CHECKS`. If one of the earlier findings in `blocked_by` is a fault, the check does
   not run, so that one cause gives one fault.
3. Add a section with the check's name to "What doctor finds" in docs/operations.md, with commands
   that end the fault, and a row to docs/doctor.md, with the rights that the check needs.
4. Plant the fault in tests/e2e/inspect/test_doctor_faults.py, which runs the section's commands.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from webhook.inspect.doctor.checks.policies import (
    check_helper_image,
    check_helper_pull,
    check_policies,
    check_runtime_classes,
)
from webhook.inspect.doctor.checks.reachability import check_dry_run, check_failed_calls
from webhook.inspect.doctor.checks.registration import (
    check_configuration,
    check_exclusions,
    check_permissions,
)
from webhook.inspect.doctor.checks.replicas import check_count, check_readiness
from webhook.inspect.doctor.installed import Installed
from webhook.inspect.doctor.model import Finding


class DoctorCheck(NamedTuple):
    """One check of an installation."""

    name: str
    run: Callable[[Installed], AsyncIterator[Finding]]
    holds: str = ""
    """What is true if the check yields nothing, as a clause."""
    blocked_by: tuple[str, ...] = ()
    """The names of earlier findings. If one of them is a fault, the check has no answer."""


CHECKS = (
    DoctorCheck("replicas", check_count),
    DoctorCheck("permissions", check_permissions, "podsettle's ServiceAccount has its rights"),
    DoctorCheck("webhook configuration", check_configuration),
    DoctorCheck(
        "exclusions",
        check_exclusions,
        "no webhook includes podsettle's own namespace, or kube-system with failurePolicy Fail",
        ("webhook configuration",),
    ),
    DoctorCheck("policies", check_policies, "podsettle accepts every policy"),
    DoctorCheck("runtime classes", check_runtime_classes, "those of policies are usable"),
    DoctorCheck("helper image", check_helper_image, "none is named, and no policy needs it"),
    DoctorCheck("helper pull", check_helper_pull, "no image is named"),
    DoctorCheck("readiness", check_readiness),
    DoctorCheck(
        "reachability",
        check_dry_run,
        blocked_by=("webhook configuration", "certificate", "registration", "readiness"),
    ),
    DoctorCheck("failed calls", check_failed_calls),
)
