from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.complexity import grows_linearly
from tests.support.factories import policy
from webhook.core.policy.errors import InvalidPolicyError
from webhook.core.types import compile_globs, glob_matches


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


@pytest.mark.parametrize("glob", ["*", "?*", "a*", "*a*", "a" * 63])
def test_a_name_longer_than_kubernetes_allows_matches_no_glob(glob: str) -> None:
    wanted = compile_globs([glob])
    assert wanted("a" * 63)
    assert not wanted("a" * 64)


GLOBS = st.text("ab*?", max_size=8)


@given(st.lists(GLOBS, max_size=3), st.text("ab\n", max_size=8))
def test_globs_match_as_shells_match_them(globs: list[str], name: str) -> None:
    assert compile_globs(globs)(name) is any(fnmatchcase(name, glob) for glob in globs)


@pytest.mark.parametrize("glob", ["*a*b", "*a*a*a*a*a*b", "*" * 60 + "b", "?*?*?*?*b", "*a?a*b"])
def test_matching_takes_time_in_proportion_to_the_text(glob: str) -> None:
    assert grows_linearly("a".__mul__, lambda text: glob_matches(glob, text))


def test_matching_takes_time_in_proportion_to_the_glob() -> None:
    assert grows_linearly(
        lambda size: ("*a" * size + "*b", "a" * 2 * size), lambda pair: glob_matches(*pair)
    )
