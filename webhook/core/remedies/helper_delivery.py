"""The delivery of the helper to a pod, by an init container that copies it or an image volume."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property

from webhook.core.cluster.helper_version import HelperFeature, helper_version
from webhook.core.constants import HELPER, HELPER_IN_IMAGE, HELPER_MOUNT, HELPER_PATH
from webhook.core.decision_input import ContainerFacts, PodFacts
from webhook.core.defects.versions import IMAGE_VOLUMES_LOCKED_ON, IMAGE_VOLUMES_ON_BY_DEFAULT
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.received_command import ContainerList
from webhook.core.reasons import Reason
from webhook.core.remedies.base import Context
from webhook.core.remedies.injected_container import injected_container

DELIVERY_REASONS = frozenset(
    {
        Reason.HELPER_IMAGE_MISSING,
        Reason.NAME_CONFLICT,
        Reason.SERVER_TOO_OLD,
    }
)
"""The reasons for which the helper cannot be delivered."""


class HelperDelivery:
    """The delivery of the helper to one pod, which another container or volume may prevent."""

    def __init__(self, pod: PodFacts, delivery: str, context: Context, patch: PodPatch) -> None:
        """`delivery` is the setting `delivery` of a remedy."""
        self._pod = pod
        self._delivery = delivery
        self._context = context
        self._patch = patch
        self._volume = volume = pod.helper_volume
        self._helper_index: int | None = None
        """The index of the init container that copies the helper. None if the pod has none."""
        self._is_movable = True
        """Whether that container may move: another webhook's program in front of its command may
        come from an init container."""
        self._is_name_taken = False
        """Whether an init container has the name of that one, and is not that one."""
        for index, container in enumerate(pod.init_containers or ()):
            if container.name == HELPER:
                copies_helper = (
                    volume is not None
                    and volume.empty_dir is not None
                    and (container.command or [""])[0] == HELPER_IN_IMAGE
                )
                # The API server will reject a pod with two containers of one name.
                if copies_helper and self._helper_index is None:
                    self._helper_index = index
                    self._is_movable = not container.inner_wrapper
                else:
                    self._is_name_taken = True

    # Computed at most once, because the caller may ask for each of hundreds of containers.
    @cached_property
    def blocked_reason(self) -> Reason | None:
        """Why the helper cannot be delivered to the pod. None if it can."""
        context, pod, volume = self._context, self._pod, self._volume
        if context.cluster.linger_image is None:
            return Reason.HELPER_IMAGE_MISSING
        if self._is_name_taken:
            return Reason.NAME_CONFLICT
        for container in pod.containers or ():
            if container.name == HELPER:
                return Reason.NAME_CONFLICT
        # podsettle's volume has one of these sources. The API server refuses one with both.
        if volume is not None and (volume.empty_dir is None) is (volume.image is None):
            return Reason.NAME_CONFLICT
        if (
            volume is not None
            and volume.image is not None
            and volume.image.reference != context.cluster.linger_image
            and not any(each.starts_helper for each in pod.all_containers)
        ):
            return Reason.NAME_CONFLICT  # No container uses it, so no earlier call has added it.
        if self._delivery == "ImageVolume":
            server = context.cluster.server_version
            if (server and server < IMAGE_VOLUMES_ON_BY_DEFAULT) or (
                context.cluster.nodes.may_lack_image_volumes(
                    context.spec_with_runtime_class(pod, self._patch)
                )
            ):
                return Reason.SERVER_TOO_OLD
        return None

    def comes_too_late(self, index: int) -> bool:
        """Return whether an init container starts before the helper is there in any case."""
        return not self._is_movable and index < (self._helper_index or 0)

    def is_lost_to(self, where: ContainerList, index: int, container: ContainerFacts) -> bool:
        """Return whether a container starts the helper without a mount, or from an empty volume.

        Whether the pod has the volume does not count: this decision may add it for another
        container, and the next call would find a loss that this one did not.
        """
        if not container.starts_helper or container.omits_command_and_mounts:
            return False
        if container.mounts_over_helper:
            # Nothing copies the helper into its volume in a copy of a pod without init containers
            # (`kubectl debug --copy-to --keep-init-containers=false`).
            return (
                self._volume is not None
                and self._volume.empty_dir is not None
                and self._helper_index is None
                and self._patch.inserted_init_container(HELPER) is None
            )
        return not self._patch.adds_mount(where, index)

    def missing(self, feature: HelperFeature) -> str:
        """Return why the helper must not be used with an option, or an empty text if it may be.

        If an earlier call has delivered the helper, its image counts: during an upgrade, a replica
        of another version may have made the call.
        """
        delivered = self._pod.helper_image
        if not delivered or delivered == self._context.cluster.linger_image:
            return self._context.missing_in_helper(feature)
        return feature.missing(delivered, helper_version(delivered, None))

    def inject(
        self,
        template: ContainerFacts | None,
        wrapped_indices: Collection[int],
        keep_alive: Callable[[], Sequence[str]],
    ) -> None:
        """Ensure that the helper is in place before the first container that it wraps starts.

        `template` is the first container that this decision wraps, or for which it delivers the
        helper again. None if there is none.
        `wrapped_indices` are the indices of the init containers that it wraps. `keep_alive` returns
        the helper's options up to and including `--`, or nothing, for an init container that copies
        it.
        """
        volume = self._volume
        if self._patch.adds_volume or self._patch.inserted_init_container(HELPER):
            return  # An earlier remedy of this decision delivers the helper before all containers.
        if template and volume is None:
            if self._uses_image_volume():
                image = {
                    "reference": self._context.cluster.linger_image,
                    "pullPolicy": "IfNotPresent",
                }
                self._patch.add_volume({"name": HELPER, "image": image})
                return
            # The volume is in memory. An emptyDir on disk may be mounted noexec. It would also keep
            # the cluster autoscaler from removing the node.
            self._patch.add_volume(
                {"name": HELPER, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
            )
        if volume is not None and volume.image is not None:
            return
        if self._helper_index is None:
            if template:
                # This container ends quickly too, so the helper may have to keep it alive.
                copying = injected_container(
                    HELPER, self._context, self._pod, template, keep_alive()
                )
                copying["args"] = ["install", HELPER_PATH]
                copying["volumeMounts"] = [{"name": HELPER, "mountPath": HELPER_MOUNT}]
                self._patch.put_init_container(copying, "first")
            return
        if self._is_name_taken or not self._is_movable:
            return
        # Another webhook may have put init containers before the helper since it was injected.
        containers_before = (self._pod.init_containers or ())[: self._helper_index]
        if any(
            position in wrapped_indices or container.starts_helper
            for position, container in enumerate(containers_before)
        ):
            self._patch.move_init_container(self._helper_index, "first")

    def _uses_image_volume(self) -> bool:
        """Return whether an image volume delivers the helper, rather than an init container."""
        if self._delivery == "ImageVolume":
            return True
        cluster = self._context.cluster
        return (
            self._delivery == "Auto"
            # Runtimes cannot mount an image in a user namespace (containerd before issue 12812 was
            # fixed, cri-o issue 9409), and Kata Containers cannot in any pod (its issue 13749).
            and self._pod.host_users is not False
            and not self._patch.runtime_class_name  # A policy may have set the class.
            # Fargate's scheduler leaves pods with a type of volume that it does not know Pending
            # (`… is of an unsupported volume Type`, cert-manager/website issue 324).
            and not self._pod.is_on_fargate
            and (
                cluster.server_version is None or cluster.server_version >= IMAGE_VOLUMES_LOCKED_ON
            )
            # If the server's version is unknown, the nodes' versions suffice, because a kubelet is
            # never newer than its API server.
            and cluster.nodes.mount_image_volumes(
                self._context.spec_with_runtime_class(self._pod, self._patch)
            )
        )
