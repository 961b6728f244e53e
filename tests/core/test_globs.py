from __future__ import annotations

import pytest

from tests.builders import policy
from webhook.core.globs import compile_globs
from webhook.core.policy import InvalidPolicyError


@pytest.mark.parametrize(
    ("globs", "name", "matches"),
    [
        (["*"], "anything", True),
        (["*"], "", True),
        ([], "anything", False),
        (["prepare"], "prepare", True),
        (["prepare"], "prepare-2", False),
        (["prepare"], "my-prepare", False),
        (["init-*"], "init-", True),
        (["init-*"], "re-init-x", False),
        (["step-?"], "step-1", True),
        (["step-?"], "step-12", False),
        (["step-?"], "step-", False),
        (["a", "b-*"], "b-c", True),
        (["a*z"], "az", True),
        (["?*"], "", False),
    ],
)
def test_a_glob_matches_whole_names(globs: list[str], name: str, matches: bool) -> None:
    assert compile_globs(globs)(name) is matches


@pytest.mark.parametrize("glob", ["", "UPPER", "a.b", "a b", "[ab]", "a" * 64, "a\n", "é"])
def test_a_glob_that_can_match_no_container_name_is_refused(glob: str) -> None:
    with pytest.raises(InvalidPolicyError, match="can match no container name"):
        policy(remedies={"postInitSleep": {"initContainers": [glob]}})
