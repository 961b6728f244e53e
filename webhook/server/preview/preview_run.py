"""The server's part of one preview: it decides on the pods that the worker has found in the text.

The worker parses text from clients, so what it sends is checked like text from a client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from webhook.core.admission.decider import OperatorSettings
from webhook.core.images import NO_IMAGES, ImageQuery, ImageResolver, KnownImages
from webhook.core.labels import parse_labels
from webhook.core.pod import DECODE_ERRORS
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.plan import compile_policy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.pod_decider import DEFAULT_NAMESPACE, PodDecider
from webhook.server.limits import MIB, PreviewLimits
from webhook.server.preview.answer_memory import PreviewAnswerText, PreviewError
from webhook.server.preview.frames import (
    MAX_PODS,
    MAX_POLICIES,
    MAX_POLICIES_BYTES,
    MAX_POLICY_BYTES,
    Decided,
    Input,
    PodFound,
    PolicyFound,
    Refused,
    decode_found,
    encode,
)
from webhook.server.preview.image_lookups import look_up_images, lookup_rules_of
from webhook.server.preview.worker_process import WorkerError, WorkerProcess


@dataclass(frozen=True, slots=True)
class PreviewOptions:
    """What a client asks for beside the text."""

    namespace: str | None = None
    namespace_labels: list[str] | None = None
    template_path: str | None = None


class PreviewRun:
    """One preview. Between two steps the event loop answers reviews."""

    def __init__(
        self,
        worker: WorkerProcess,
        options: PreviewOptions,
        view: Callable[[], Snapshot],
        settings: OperatorSettings,
        images: ImageResolver | None,
        limits: PreviewLimits,
    ) -> None:
        self._worker = worker
        self._options = options
        self._view = view
        self._settings = settings
        self._images = images
        self._limits = limits
        self._pods: deque[PodFound] = deque()
        self._policies: list[bytes] = []

    async def make(
        self,
        body: list[bytes],
        answer: PreviewAnswerText,
        deadline: asyncio.Timeout,
    ) -> None:
        """Add the pieces of the answer, and remove those of the body when they are sent.

        Image look-ups have a limit of their own, so they extend the deadline.

        Raises WorkerError, and PreviewError for a text or a parameter that is refused.
        """
        pairs = self._options.namespace_labels
        try:
            labels = None if pairs is None else parse_labels(pairs)
        except ValueError as error:
            raise PreviewError("refused", 422, str(error)) from None
        await self._worker.send(encode(Input(self._options.template_path)))
        await self._worker.send(*body)
        body.clear()
        try:
            await self._receive_text()
            await self._decide(labels, answer, deadline)
        finally:
            self._pods.clear()

    async def _decide(
        self,
        labels: Mapping[str, str] | None,
        answer: PreviewAnswerText,
        deadline: asyncio.Timeout,
    ) -> None:
        """Decide on one pod after the other, and receive a part of the answer after each."""
        view = self._view()
        policies = await self._replace_policies(view.policies)
        decider = PodDecider(policies, view, self._settings, namespace_labels=labels)
        images = await self._look_up_images(decider, policies, view.policies, deadline)
        while self._pods:
            pod = self._pods.popleft()
            decided = decider.decide(pod.pod, self._namespace_of(pod), images)
            await self._worker.send(encode(Decided(decided.class_fields, decided.render())))
            await self._receive_part(answer)
            # Neither call waits if the worker has sent its part already.
            await asyncio.sleep(0)
        await self._receive_part(answer)

    async def _receive_text(self) -> None:
        """Receive what the worker has found in the text."""
        found_bytes, max_bytes = 0, self._limits.answer_bytes

        def count_bytes(byte_count: int) -> None:
            nonlocal found_bytes
            found_bytes += byte_count
            if found_bytes > max_bytes:  # The answer has each pod twice.
                detail = f"the answer is longer than {max_bytes // MIB} MiB"
                raise PreviewError("refused", 422, f"{detail}: send the input in parts")

        while True:
            frame = await self._worker.receive(count_bytes)
            try:
                found = decode_found(frame)
            except DECODE_ERRORS as error:
                raise WorkerError(f"it sent an invalid frame: {error}") from None
            match found:
                case PodFound():
                    self._pods.append(found)
                case PolicyFound(document):
                    self._policies.append(bytes(document))
                case Refused(detail):
                    raise PreviewError("refused", 422, detail)
                case _:
                    return
            if (
                len(self._pods) > MAX_PODS
                or len(self._policies) > MAX_POLICIES
                or max(map(len, self._policies), default=0) > MAX_POLICY_BYTES
                or sum(map(len, self._policies)) > MAX_POLICIES_BYTES
            ):
                raise WorkerError("it sent more than a text may contain")

    async def _replace_policies(self, in_force: PolicySet) -> PolicySet:
        """Return the policies in force, replaced by those of the text."""
        if not self._policies:
            return in_force
        compiled = []
        for text in self._policies:
            try:
                document = SettlePolicy.model_validate_json(text)
            except ValidationError:
                raise WorkerError("it sent an invalid policy") from None
            await asyncio.sleep(0)
            compiled.append((document, compile_policy(document)))
            await asyncio.sleep(0)
        return in_force.replaced(compiled)

    async def _look_up_images(
        self,
        decider: PodDecider,
        policies: PolicySet,
        in_force: PolicySet,
        deadline: asyncio.Timeout,
    ) -> KnownImages:
        """Return the images that the decisions need. Few policies allow to look images up."""
        if self._images is None or not lookup_rules_of(policies):
            return NO_IMAGES
        missing: dict[ImageQuery, None] = {}
        for pod in self._pods:
            decided = decider.decide(pod.pod, self._namespace_of(pod))
            missing |= dict.fromkeys(decided.decision.missing_images)
            await asyncio.sleep(0)
        if not missing:
            return NO_IMAGES
        loop = asyncio.get_running_loop()
        due, started_at = deadline.when(), loop.time()
        deadline.reschedule(None)
        images = await look_up_images(self._images, missing, in_force, self._limits.image_seconds)
        if due is not None:
            deadline.reschedule(due + loop.time() - started_at)
        return images

    def _namespace_of(self, pod: PodFound) -> str:
        return self._options.namespace or pod.namespace or DEFAULT_NAMESPACE

    async def _receive_part(self, answer: PreviewAnswerText) -> None:
        async for piece in self._worker.receive_pieces(answer.reserve):
            answer.pieces.append(piece)
