"""A cache of decisions, because most pods of a cluster are copies of a few templates.

A Deployment, Job or Task creates hundreds of pods from one template. The key is the plan with the
encoded DecisionInput. The cache decides on the values that it has encoded, so a decision cannot
depend on anything outside its key. An entry holds for pods with any commands, and contains the
answer to the last one. The cache is cleared when the facts about the cluster change. The plan of a
changed policy is another key. When the cache is full, it evicts the decision that was used least
recently.

A decision is stored when its key comes for the second time. So pods of which no two are alike, with
which a tenant could fill the cache, neither evict decisions nor take memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from webhook.core.admission.apply_plan import apply_plan
from webhook.core.admission.decision import Decision, Draft
from webhook.core.cluster.view import ClusterFacts
from webhook.core.decision_input import DecisionInput
from webhook.core.images import Images
from webhook.core.pod import Pod
from webhook.core.policy.plan import Plan

MAX_CACHE_BYTES = 2 * 1024 * 1024
"""The maximum size of all entries. A Tekton TaskRun takes 6 KB. The process needs up to twice as
much, because the sizes of Python objects are estimated."""
_MAX_ENTRY_SHARE = 1 / 16
"""The share of the cache that one entry may take. Larger decisions are not cached, because one
unusual pod of a tenant must not evict the decisions for other tenants."""
_ENTRY_OVERHEAD_BYTES = 1_400
"""The estimated size of the Python objects of an entry without outcomes. A tenant can cause
thousands of entries whose keys and answers take a tenth of this."""
_OUTCOME_BYTES = 100
"""The estimated size of one outcome. It is counted apart, because the answer may omit it."""
_MAX_SEEN_ONCE = 512
"""The maximum number of keys that are remembered after their first time, as their hashes. It is
about twice the number of entries: a key that comes less often would be evicted before it is used.
"""

# Only JSON has the same bytes for equal inputs alone: an undecoded field is one JSON value, and
# JSON shows where it ends.
_encode = msgspec.json.Encoder().encode


class _Entry(NamedTuple):
    draft: Draft
    commands: list[Sequence[str] | None]
    decision: Decision
    """The decision about the last pod, which had these commands."""
    size: int


class DecisionCache:
    """A cache of the decisions since the last change of the cluster. It is not thread-safe."""

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._cluster: ClusterFacts | None = None
        self._entries: OrderedDict[tuple[Plan, bytes], _Entry] = OrderedDict()
        """The first one was used least recently."""
        self._seen_once: set[int] = set()
        self.size_bytes = 0
        """The size of all entries."""

    def __len__(self) -> int:
        return len(self._entries)

    def get_or_decide(
        self,
        pod: Pod,
        decision_input: DecisionInput,
        plan: Plan,
        cluster: ClusterFacts,
        images: Images,
    ) -> Decision:
        """Return the cached decision about a pod, or make it. Raises the errors of `apply_plan`.

        `decision_input` has the facts about the pod. Of the pod itself, only commands are read.
        `images` knows none yet. A decision that asks for one is not stored.
        """
        if cluster is not self._cluster:
            if cluster != self._cluster:
                self._entries.clear()
                self.size_bytes = 0
            # Equal facts replace the stored ones too, so that the next comparison need not compare
            # all nodes.
            self._cluster = cluster
        key = plan, _encode(decision_input)
        entry = self._entries.get(key)
        draft = entry.draft if entry else apply_plan(decision_input, plan, cluster, images)
        commands = draft.commands_of(pod)
        if entry is not None:
            self._entries.move_to_end(key)
            if commands == entry.commands:
                return entry.decision
        decision = draft.complete(commands)
        if entry is None and hash(key) not in self._seen_once:
            if len(self._seen_once) == _MAX_SEEN_ONCE:
                self._seen_once.clear()
            self._seen_once.add(hash(key))
        elif not decision.missing_images:  # A better decision follows.
            self._store(key, draft, commands, decision)
        return decision

    def _store(
        self,
        key: tuple[Plan, bytes],
        draft: Draft,
        commands: list[Sequence[str] | None],
        decision: Decision,
    ) -> None:
        # The patch contains the commands, and in base64 it is as long as the template and a third.
        size = _ENTRY_OVERHEAD_BYTES + len(key[1]) + 2 * len(decision.patch)
        size += len(decision.texts.texts_json) + _OUTCOME_BYTES * len(decision.outcomes)
        size += sum(map(len, decision.annotations.values()))
        if size > self._max_bytes * _MAX_ENTRY_SHARE:
            return
        replaced = self._entries.get(key)
        self._entries[key] = _Entry(draft, commands, decision, size)
        self.size_bytes += size - (replaced.size if replaced else 0)
        while self.size_bytes > self._max_bytes:
            self.size_bytes -= self._entries.popitem(last=False)[1].size
