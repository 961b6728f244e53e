"""One run of the worker, which makes the JSON of a PreviewAnswer from a text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from webhook.core.admission.decider import OperatorSettings
from webhook.core.image_reference import parse_reference
from webhook.core.images import ImageConfig, ImageQuery, KnownImages, Unavailable
from webhook.core.labels import parse_labels
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.document import Document
from webhook.core.preview.model import ObjectWithoutPod, render, render_passed_over
from webhook.core.preview.policies import policies_in, replace_policies
from webhook.core.preview.preview import preview_all
from webhook.core.preview.workloads import PassedOver
from webhook.core.preview.yaml_documents import load_documents
from webhook.server.preview.messages import Run

MAX_PODS = 500
MAX_OBJECTS_WITHOUT_POD = 5_000
MAX_ERROR_LINES = 20
"""The maximum number of lines in an error that lists objects without a pod."""
MAX_POLICIES = 200
"""The maximum number of policies in a text. They decide in place of those of the same names."""
MAX_IMAGES = 500
"""The maximum number of images that are looked up for one preview."""


class RunImages(Mapping[ImageQuery, ImageConfig | Unavailable]):
    """The image configurations of a run. Invalid image names count as unavailable."""

    def __init__(self, known: Mapping[bytes, ImageConfig | Unavailable], complete: bool) -> None:
        """`known` has the results of look-ups by image key. If `complete`, no more follow."""
        self._known = known
        self._complete = complete

    def __getitem__(self, query: ImageQuery) -> ImageConfig | Unavailable:
        result = self._known.get(image_key(query))
        if result is not None:
            return result
        try:
            parse_reference(query.image)
        except ValueError as error:
            return Unavailable(str(error))
        if self._complete:
            return Unavailable(
                f"the image was not looked up: a preview looks up at most {MAX_IMAGES}"
            )
        raise KeyError(query)

    def __iter__(self) -> Iterator[ImageQuery]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._known)


def image_key(query: ImageQuery) -> bytes:
    """Return the key of an image in messages. Previews look images up without credentials."""
    parts = (query.image, query.rules, sorted(query.architectures), query.namespace)
    text = repr(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()


class PreviewRun:
    """The preview of one text: the decisions on its pods, and the answer."""

    def __init__(self, run: Run, view: Snapshot, images: KnownImages) -> None:
        self._run = run
        self._view = view
        self._images = images
        self._pods: list[bytes] = []
        self._without_pod: dict[bool, list[ObjectWithoutPod]] = {True: [], False: []}
        """The objects without a pod, by whether they are malformed."""
        self.missing_images: dict[bytes, ImageQuery] = {}
        """The images that must be looked up before the text can be answered, by their keys."""

    def read(self, body: bytes) -> None:
        """Decide on all pods of a text. Raises DocumentError or ValueError for invalid input."""
        labels = self._run.namespace_labels
        namespace_labels = None if labels is None else parse_labels(labels)
        settings = OperatorSettings(
            self._run.own_namespace, self._run.linger_image, self._run.docs_url
        )
        documents = load_documents(body, "body")
        if not documents:
            raise ValueError(
                "the body is empty or has only comments: send a Pod or a workload; "
                "with curl, use --data-binary, because --data removes line ends"
            )
        policies = self._policies_with(documents)
        pod_count = 0
        for document in documents:
            for preview in preview_all(
                document.value,
                policies,
                self._view,
                settings,
                namespace=self._run.namespace,
                namespace_labels=namespace_labels,
                template_path=self._run.template_path,
                images=self._images,
            ):
                if isinstance(preview, PassedOver):
                    passed_over = render_passed_over(preview, document)
                    self._add_without_pod(passed_over, preview.malformed)
                    continue
                pod_count += 1
                if pod_count > MAX_PODS:
                    raise ValueError(f"more than {MAX_PODS} pods: send them in parts")
                if self._run.images == "Ask":
                    for query in preview.decision.missing_images:
                        self.missing_images.setdefault(image_key(query), query)
                if not self.missing_images:
                    self._pods.append(render(preview).model_dump_json(by_alias=True).encode())
        if not pod_count:
            raise ValueError(self._no_pod_message())

    def _policies_with(self, documents: Iterable[Document]) -> PolicySet:
        """Return the policies in force, replaced by those in the documents."""
        replacements: dict[str, SettlePolicy] = {}
        for document in documents:
            replacements = policies_in(document.value) | replacements
            if len(replacements) > MAX_POLICIES:
                raise ValueError(f"more than {MAX_POLICIES} policies: send fewer of them")
        if not replacements:
            return self._view.policies
        return replace_policies(self._view.policies, replacements.values())

    def _add_without_pod(self, passed_over: ObjectWithoutPod, malformed: bool) -> None:
        self._without_pod[malformed].append(passed_over)
        if sum(map(len, self._without_pod.values())) > MAX_OBJECTS_WITHOUT_POD:
            raise ValueError(
                f"more than {MAX_OBJECTS_WITHOUT_POD} objects without a pod: send them in parts"
            )

    def _no_pod_message(self) -> str:
        objects = [*self._without_pod[True], *self._without_pod[False]]
        lines = [str(passed_over) for passed_over in objects[:MAX_ERROR_LINES]]
        if len(objects) > len(lines):
            lines.append(f"and {len(objects) - len(lines)} more objects without a pod")
        return "\n".join(lines) or "the list is empty: there is no pod in it"

    def answer(self) -> Iterator[bytes]:
        """Yield the JSON of a PreviewAnswer, in pieces of different lengths."""
        for name, items in (
            (b'{"pods":[', self._pods),
            (b'],"passedOver":[', _encoded(self._without_pod[False])),
            (b'],"unreadable":[', _encoded(self._without_pod[True])),
        ):
            yield name
            for index, item in enumerate(items):
                if index:
                    yield b","
                yield item
        yield b"]}"


def _encoded(objects: list[ObjectWithoutPod]) -> Iterator[bytes]:
    return (passed_over.model_dump_json(by_alias=True).encode() for passed_over in objects)
