"""The result of a preview: an answer that counts against a memory budget, or an error."""

from __future__ import annotations

from collections.abc import Callable

from webhook.server.limits import MIB
from webhook.server.metric_labels import PreviewResult
from webhook.server.reviews.load_shedding import MemoryBudget


class PreviewError(Exception):
    """An HTTP error for a preview, with a sentence that says what to do."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class PreviewAnswerText:
    """The JSON of an answer, in pieces. It counts against the budget until it is released."""

    def __init__(self, budget: MemoryBudget, count_result: Callable[[PreviewResult], None]) -> None:
        """`count_result` is called if the answer is refused."""
        self._budget = budget
        self._count_result = count_result
        self._reserved_bytes = 0
        self.pieces: list[bytes] = []

    @property
    def length(self) -> int:
        """Length of the answer in bytes."""
        return sum(map(len, self.pieces))

    def reserve(self, byte_count: int) -> None:
        """Reserve memory for more bytes. Raises PreviewError if the budget is exhausted.

        The bytes stay reserved until `release`, after an error too.
        """
        self._reserved_bytes += byte_count
        self._budget.used_bytes += byte_count
        limit = self._budget.limit_bytes
        if self._reserved_bytes > limit:
            self._count_result("refused")
            raise PreviewError(
                422, f"the answer is longer than {limit // MIB} MiB: send the input in parts"
            )
        if self._budget.exhausted:
            self._count_result("overloaded")
            raise PreviewError(503, "answers to other previews are still being sent; try again")

    def release(self) -> None:
        """Drop the answer and return its bytes to the budget."""
        self.pieces = []
        self._budget.used_bytes -= self._reserved_bytes
        self._reserved_bytes = 0
