"""The self-check runs once for each shape of a patch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.support.factories import Json, container, pod
from webhook.core.admission.review import make_request
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.verify import MAX_PARTS, PatchError, Shape, VerifiedShapes

Edit = Callable[[PodPatch], object]


class RecordedShapes(VerifiedShapes):
    """Verified shapes that record each shape that was checked."""

    def __init__(self, max_parts: int = MAX_PARTS) -> None:
        super().__init__(max_parts)
        self.checked: list[Shape] = []

    def add(self, shape: Shape, before: Json, operations: Sequence[Json]) -> None:
        self.checked.append(shape)
        super().add(shape, before, operations)


@pytest.fixture
def verified_shapes() -> RecordedShapes:
    return RecordedShapes()


def check(document: Json, edit: Edit, verified_shapes: VerifiedShapes) -> None:
    patch = PodPatch(make_request(document, "ci").pod)
    edit(patch)
    patch.verified_operations(verified_shapes)


WRAP: Edit = lambda patch: patch.wrap("initContainers", 0, ["w"])  # noqa: E731
CLASS: Edit = lambda patch: patch.set_runtime_class("fast")  # noqa: E731
RULES: Edit = lambda patch: patch.set_restart_rules(0, [{"action": "Restart"}])  # noqa: E731
SELINUX: Edit = lambda patch: patch.set_selinux_change_policy("Recursive")  # noqa: E731
VOLUME: Edit = lambda patch: patch.add_volume({"name": "podsettle-linger"})  # noqa: E731
IMAGE: Edit = lambda patch: patch.wrap_image_command(  # noqa: E731
    "initContainers", 0, ["w"], ["e"], ["c"]
)
MOVE: Edit = lambda patch: patch.move_init_container_first(1)  # noqa: E731


def first(name: str) -> Edit:
    return lambda patch: patch.put_init_container_first({"name": name})


def last(name: str) -> Edit:
    return lambda patch: patch.put_init_container({"name": name}, None)


def annotate(key: str) -> Edit:
    return lambda patch: patch.annotate(key, "x")


ONE = pod(container("a", "x"))
HELPED = pod(container("podsettle-linger", "/linger"))
OWN = "podsettle.dev/applied"


@pytest.mark.parametrize(
    ("verified", "edit", "other", "other_edit"),
    [
        (ONE, WRAP, pod(container("a")), WRAP),
        (ONE, WRAP, HELPED, WRAP),
        (ONE, CLASS, pod(runtimeClassName="kata"), CLASS),
        (pod(runtimeClassName="fast"), CLASS, pod(runtimeClassName="kata"), CLASS),
        (pod(securityContext={}), SELINUX,
         pod(securityContext={"seLinuxChangePolicy": "MountOption"}), SELINUX),
        (ONE, RULES, pod(container("a", "x", restartPolicy="Always")), RULES),
        (pod(container("a", restartPolicy="Never", restartPolicyRules=[{"action": "Restart"}])),
         RULES, pod(container("a", restartPolicy="Always")), RULES),
        (ONE, first("podsettle-linger"), ONE, first("intruder")),
        (ONE, first("podsettle-linger"), HELPED, first("podsettle-linger")),
        (ONE, last("podsettle-kubelet-gate"), ONE, last("intruder")),
        (ONE, VOLUME, pod(volumes=[{"name": "podsettle-linger"}]), VOLUME),
        (pod(container("a")), IMAGE, pod(container("a", args=["mine"])), IMAGE),
        (pod(container("a")), IMAGE, ONE, IMAGE),
        (pod(*map(container, ("a", "podsettle-linger"))), MOVE, pod(*map(container, "ab")), MOVE),
        (pod(*map(container, ("a", "podsettle-linger"))), MOVE, ONE, MOVE),
    ],
)  # fmt: skip
def test_a_verified_shape_does_not_cover_another_shape(
    verified: Json, edit: Edit, other: Json, other_edit: Edit, verified_shapes: VerifiedShapes
) -> None:
    try:
        check(verified, edit, verified_shapes)
    except PatchError as error:
        pytest.fail(str(error))
    with pytest.raises(PatchError):
        check(other, other_edit, verified_shapes)


def test_a_verified_shape_is_not_checked_again(verified_shapes: RecordedShapes) -> None:
    check(ONE, WRAP, verified_shapes)
    assert len(verified_shapes.checked) == 1
    check(pod(container("b", "other", "command")), WRAP, verified_shapes)
    assert len(verified_shapes.checked) == 1
    check(ONE, CLASS, verified_shapes)
    assert len(verified_shapes.checked) == 2


def test_a_rejected_shape_stays_unverified(verified_shapes: VerifiedShapes) -> None:
    for _ in range(2):
        with pytest.raises(PatchError):
            check(ONE, first("intruder"), verified_shapes)


@pytest.mark.parametrize("annotations", [{}, {"theirs": "x"}])
def test_a_foreign_annotation_is_rejected(
    annotations: dict[str, str], verified_shapes: VerifiedShapes
) -> None:
    with pytest.raises(PatchError, match="annotation theirs"):
        check(
            pod(container("a", "x"), annotations=annotations), annotate("theirs"), verified_shapes
        )


def test_two_mounts_in_one_container_are_rejected(verified_shapes: VerifiedShapes) -> None:
    def twice(patch: PodPatch) -> None:
        patch.add_mount("initContainers", 0, {"name": "v", "mountPath": "/v"})
        patch.add_mount("initContainers", 0, {"name": "w", "mountPath": "/w"})

    with pytest.raises(PatchError, match="mounts of a"):
        check(ONE, twice, verified_shapes)


def test_verified_shapes_are_cleared_when_they_exceed_the_limit() -> None:
    verified_shapes = RecordedShapes(max_parts=60)
    for count in range(1, 41):
        containers = [container(f"c{n}", "x") for n in range(count)]

        def wrap_all(patch: PodPatch, count: int = count) -> None:
            for index in range(count):
                patch.wrap("initContainers", index, ["w"])

        check(pod(*containers), wrap_all, verified_shapes)
        assert _parts(verified_shapes) <= max(60, count + 12)
    inits = [container("podsettle-linger", "/linger") for _ in range(100)]
    for position in range(10):
        mixed = [*inits[:position], container("a", "x"), *inits[position:]]
        check(
            pod(*mixed),
            lambda patch, at=position: patch.wrap("initContainers", at, ["w"]),  # type: ignore[misc]
            verified_shapes,
        )
        assert _parts(verified_shapes) <= 120


def _parts(verified_shapes: RecordedShapes) -> int:
    """The size of all stored shapes."""
    return sum(
        len(part) if isinstance(part, tuple) else 1
        for shape in set(verified_shapes.checked)
        if shape in verified_shapes
        for part in shape
    )
