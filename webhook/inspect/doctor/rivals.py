"""The tools that could create podsettle's webhook configuration again after its deletion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from webhook.core.constants import OBJECT_NAME
from webhook.core.types import Json

_OWN_MANAGERS = ("podsettle", "helm", "kubectl", "before-first-apply")
"""The beginnings of the names of field managers that do not create the object again."""
_INJECTORS = ("cert-manager", "cainjector", "service-ca")
"""Parts of the names of field managers that only write the caBundle of an object that exists."""


class Rival(NamedTuple):
    """A tool that could create the configuration again."""

    tool: str
    suspension: str
    """What to do before the switch is used: a command or a clause."""

    @property
    def is_command(self) -> bool:
        """Whether the suspension is a command."""
        return self.suspension.startswith(("kubectl ", "flux "))


def rivals(configuration: Json) -> Iterator[Rival]:
    """Yield the tools that could create the configuration again after its deletion.

    The API server does not check the texts in annotations and owner references. A name that is no
    object's name gets no command, because it could contain a command of a shell.
    """
    metadata = configuration["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    tracking = annotations.get("argocd.argoproj.io/tracking-id", "").partition(":")[0]
    application = tracking or labels.get("argocd.argoproj.io/instance", "")
    if application:
        yield Rival(
            "Argo CD",
            f"kubectl -n argocd patch application {application} --type=merge "
            """-p '{"spec":{"syncPolicy":{"automated":null}}}'"""
            if OBJECT_NAME.fullmatch(application)
            else f"switch off the automatic sync of Application {application!a}",
        )
    for kind in ("kustomize", "helm"):
        prefix = f"{kind}.toolkit.fluxcd.io"
        if name := labels.get(f"{prefix}/name"):
            resource = "kustomization" if kind == "kustomize" else "helmrelease"
            of_namespace = labels.get(f"{prefix}/namespace") or "flux-system"
            yield Rival("Flux", f"flux suspend {resource} {name} -n {of_namespace}")
    if owners := metadata.get("ownerReferences"):
        owner = " ".join(_shown(owners[0][key]) for key in ("kind", "name"))
        yield Rival(f"the operator of {owner}", f"suspend it, or delete {owner}")
    for manager in sorted(
        {each.get("manager", "") for each in metadata.get("managedFields") or ()}
    ):
        is_known = manager.lower().startswith(_OWN_MANAGERS) or any(
            part in manager for part in _INJECTORS
        )
        if manager and not is_known:
            yield Rival(
                f"the field manager {manager}",
                f"{manager} has written this object: suspend it if it is a GitOps tool or an "
                "operator",
            )


def _shown(text: str) -> str:
    """Return a text of an owner reference in one line, as it may contain line breaks."""
    return text if text.isalnum() or OBJECT_NAME.fullmatch(text) else ascii(text)
