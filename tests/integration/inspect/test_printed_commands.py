"""Printed commands with any flags and words, as a shell runs them."""

from __future__ import annotations

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from webhook.inspect.cluster_flags import ClusterFlags, kubectl

# All that an argument of a program can be. Names of contexts and files are any text, and some words
# are arguments of a Deployment that a tenant wrote.
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(
    flags=st.builds(ClusterFlags, WORDS, WORDS, WORDS, st.tuples(WORDS)),
    words=st.lists(WORDS, max_size=3),
)
def test_shell_passes_every_word_of_a_printed_command_on_as_it_is(
    flags: ClusterFlags, words: list[str]
) -> None:
    record = "kubectl() { printf '%s\\0' \"$@\"; }\n"
    done = subprocess.run(
        ["sh", "-euc", record + flags.command(kubectl(*words))],
        capture_output=True,
        check=True,
    )
    chosen = {"--kubeconfig": flags.kubeconfig, "--context": flags.context, "--as": flags.as_user}
    expected = [f"{flag}={value}" for flag, value in chosen.items() if value]
    expected += [f"--as-group={each}" for each in flags.as_groups]
    assert done.stdout.decode().split("\0")[:-1] == [*expected, *words]
