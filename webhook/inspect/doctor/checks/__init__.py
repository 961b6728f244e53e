"""The checks of an installation, in the order in which they run.

Each is in a module here. A check follows those that it is blocked by.
"""

from __future__ import annotations

from webhook.inspect.doctor.checks.certificate import CERTIFICATE, TRUST
from webhook.inspect.doctor.checks.check import DoctorCheck
from webhook.inspect.doctor.checks.configuration import CONFIGURATION, CONTROL_PLANE, OWN_NAMESPACE
from webhook.inspect.doctor.checks.crd import CRD
from webhook.inspect.doctor.checks.exported_policies import EXPORTED
from webhook.inspect.doctor.checks.helper_image import HELPER_IMAGE, HELPER_PULL
from webhook.inspect.doctor.checks.lease import LEASE
from webhook.inspect.doctor.checks.permissions import PERMISSIONS
from webhook.inspect.doctor.checks.policies import HANDLERS, POLICIES, RUNTIME_CLASSES
from webhook.inspect.doctor.checks.reachability import FAIL_OPEN, REACHABILITY
from webhook.inspect.doctor.checks.replicas import READINESS, REPLICAS

CHECKS: tuple[DoctorCheck, ...] = (
    REPLICAS,
    PERMISSIONS,
    READINESS,
    LEASE,
    CRD,
    CONFIGURATION,
    OWN_NAMESPACE,
    CONTROL_PLANE,
    CERTIFICATE,
    TRUST,
    POLICIES,
    RUNTIME_CLASSES,
    HANDLERS,
    EXPORTED,
    HELPER_IMAGE,
    HELPER_PULL,
    REACHABILITY,
    FAIL_OPEN,
)
