"""Reviews of mutants, answered with one cache and without, in an order that mixes all inputs."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import cycle

import jsonpatch
import msgspec

from tests.mutants.clusters import (
    COVERED_NAMESPACES,
    EVERY_REMEDY,
    FACTS,
    NAMESPACES,
    POLICY_SETS,
    SETTINGS,
)
from tests.mutants.mutation import Mutator
from tests.support.factories import Json, review
from tests.support.paths import EXAMPLES
from tests.support.reviews import PODS, load_pod, patch_of
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.decision import Decision
from webhook.core.admission.handler import Answer, UnreadableReviewError, admit, admit_again
from webhook.core.images import NO_IMAGES, ImageConfig, KnownImages, Unavailable
from webhook.core.policy.snapshot import Snapshot
from webhook.core.remedies import REMEDIES

_REVIEWS_PER_CLUSTER = 200
"""A change of the cluster clears the cache, so more frequent changes would prevent hits."""
_MAX_REMEMBERED = 20_000
_CONFIGS = (ImageConfig(("/bin/app",), ("run",)), Unavailable("registry.example: it is away"))


@dataclass
class Report:
    """What a comparison found."""

    compared: int = 0
    hits: int = 0
    """Answers from the cache, each to another review than the one that it was decided for."""
    hits_with_patch: int = 0
    by_remedy: Counter[str] = field(default_factory=Counter)
    """The pods that each remedy changed."""
    differences: list[str] = field(default_factory=list)

    @property
    def shows_something(self) -> bool:
        """Whether hits were frequent and each remedy changed a pod, so that errors would show."""
        return (
            self.hits > 0.2 * self.compared
            and self.hits_with_patch > 0.1 * self.compared
            and self.by_remedy.keys() == REMEDIES.keys()
        )

    def __str__(self) -> str:
        share = self.hits / max(1, self.compared)
        return (
            f"{self.compared} compared, {self.hits} cache hits ({share:.0%}, of which "
            f"{self.hits_with_patch} with a patch), {len(self.differences)} differences"
        )


class Comparison:
    """A sequence of reviews. The same seed gives the same reviews."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        paths = [*PODS, *sorted((EXAMPLES / "pods").glob("*.yaml"))]
        pods = [load_pod(path) for path in paths]
        self._mutator = Mutator(pods, self._chance)
        # In turn, so that a few thousand reviews contain all of them.
        self._pods_in_turn = cycle(self._chance.sample(pods, len(pods)))
        self._facts_in_turn = cycle(self._chance.sample(FACTS, len(FACTS)))
        self._reviews = 0
        self._cache = DecisionCache()
        # Strong references, so that no two decisions have the same id.
        self._decided: dict[int, Decision] = {}
        self._seed = seed
        self.report = Report()

    def run(self, count: int) -> Report:
        """Compare the answers to `count` reviews and return the report of all reviews so far."""
        chance = self._chance
        end = self.report.compared + count
        while self.report.compared < end:
            if self._reviews % _REVIEWS_PER_CLUSTER == 0:
                self._choose_cluster()
            self._reviews += 1
            # Rarely another cluster or another helper's image for one review.
            view = replace(
                chance.choice(FACTS) if chance.random() < 0.002 else self._facts,
                policies=chance.choice(self._policies),
            )
            settings = chance.choice(SETTINGS) if chance.random() < 0.004 else self._settings
            pod = self._mutant()
            body = self._encoded(review(pod, namespace=self._namespace()))
            answer = self._compare(body, view, settings)
            if answer is None:
                continue
            if answer.decision.missing_images:
                known = {q: chance.choice(_CONFIGS) for q in answer.decision.missing_images}
                self._compare(body, view, settings, known)
            elif answer.decision.patch:
                self._continue_with(pod, answer)
        return self.report

    def _choose_cluster(self) -> None:
        """Choose a cluster, and a few of all pods, policies and namespaces, so that hits occur."""
        chance = self._chance
        self._facts = next(self._facts_in_turn)
        self._settings = chance.choice((*SETTINGS, SETTINGS[0]))
        self._policies = [chance.choice(EVERY_REMEDY), chance.choice(POLICY_SETS)]
        self._namespaces = chance.sample(COVERED_NAMESPACES, 3)
        self._pods = [next(self._pods_in_turn), next(self._pods_in_turn)]

    def _namespace(self) -> str:
        chance = self._chance
        return chance.choice(NAMESPACES if chance.random() < 0.1 else self._namespaces)

    def _mutant(self) -> Json:
        pod = self._chance.choice(self._pods)
        return self._mutator.mutant(pod, only_foreign=self._chance.random() < 0.5)

    def _continue_with(self, pod: Json, answer: Answer) -> None:
        """Sometimes mutate a mutant again, or the pod that a reinvocation would receive."""
        dice = self._chance.random()
        if dice < 0.02:
            pod = jsonpatch.apply_patch(pod, patch_of(json.loads(answer.body)))
        if dice < 0.1:
            self._pods[self._chance.randrange(len(self._pods))] = pod

    def _encoded(self, body: Json) -> bytes:
        """Return JSON in one of several spellings, and rarely with a damaged byte."""
        dice = self._chance.random()
        if dice < 0.8:
            encoded = msgspec.json.encode(body)
        else:
            # With escapes instead of UTF-8, and with other white space.
            encoded = json.dumps(body, indent=1 if dice < 0.82 else None).encode()
        if self._chance.random() < 0.01:
            at = self._chance.randrange(len(encoded))
            encoded = encoded[:at] + self._chance.randbytes(1) + encoded[at + 1 :]
        return encoded

    def _compare(
        self,
        body: bytes,
        view: Snapshot,
        settings: OperatorSettings,
        images: KnownImages = NO_IMAGES,
    ) -> Answer | None:
        """Compare two answers to a review, and return one, or None if it has no uid."""
        self.report.compared += 1
        wanted = _answer(body, Decider(settings), view, images)
        found = _answer(body, Decider(settings, self._cache), view, images)
        if wanted is None or found is None:
            if wanted is not found:
                self._add_difference(body, view, "only one way refuses it")
            return None
        if found.body != wanted.body or repr(found.decision) != repr(wanted.decision):
            self._add_difference(
                body, view, f"with the cache {found.decision}, without it {wanted.decision}"
            )
        if wanted.decision.patch and not _is_utf8(body):
            self._add_difference(body, view, "a patch for a pod that is not UTF-8")
        self._count(found.decision)
        return wanted

    def _count(self, decision: Decision) -> None:
        if decision.policies and self._decided.get(id(decision)) is decision:
            self.report.hits += 1
            self.report.hits_with_patch += bool(decision.patch)
        if len(self._decided) >= _MAX_REMEMBERED:
            self._decided.clear()
        self._decided[id(decision)] = decision
        self.report.by_remedy.update({o.remedy for o in decision.outcomes if o.changed})

    def _add_difference(self, body: bytes, view: Snapshot, text: str) -> None:
        policies = [each.model_dump_json(exclude_none=True) for each in view.policies.documents]
        self.report.differences.append(
            f"seed {self._seed}, review {self.report.compared}: {text}\n"
            f"review: {body!r}\npolicies: {policies}"
        )


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _answer(body: bytes, decider: Decider, view: Snapshot, images: KnownImages) -> Answer | None:
    try:
        answer = admit(body, decider, view)
        return admit_again(answer, decider, view, images) if images else answer
    except UnreadableReviewError:
        return None
