"""The result of a preview: an answer that counts against a memory budget, or an error."""

from __future__ import annotations

from webhook.server.limits import MIB
from webhook.server.metric_labels import PreviewResult
from webhook.server.reviews.load_shedding import MemoryBudget


class PreviewError(Exception):
    """An HTTP error for a preview, with a sentence that says what to do."""

    def __init__(self, result: PreviewResult, status: int, detail: str) -> None:
        super().__init__(detail)
        self.result = result
        self.status = status
        self.detail = detail


class PreviewAnswerText:
    """The JSON of an answer, in pieces. It counts against the budget until it is released."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._reserved_bytes = 0
        self.pieces: list[bytes] = []

    def reserve(self, byte_count: int) -> None:
        """Reserve memory for more bytes. Raises PreviewError if the budget is exhausted.

        The bytes stay reserved until `release`, after an error too.
        """
        self._reserved_bytes += byte_count
        self._budget.used_bytes += byte_count
        limit = self._budget.limit_bytes
        if self._reserved_bytes > limit:
            detail = f"the answer is longer than {limit // MIB} MiB: send the input in parts"
            raise PreviewError("refused", 422, detail)
        if self._budget.exhausted:
            detail = "answers to other previews are still being sent; try again"
            raise PreviewError("overloaded", 503, detail)

    def release(self) -> None:
        """Drop the answer and return its bytes to the budget."""
        self.pieces = []
        self._budget.used_bytes -= self._reserved_bytes
        self._reserved_bytes = 0
