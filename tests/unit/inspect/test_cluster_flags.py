"""Printed commands, as a shell reads them."""

from __future__ import annotations

from webhook.cluster.rights import Right
from webhook.inspect.cluster_flags import NO_FLAGS, ClusterFlags, Command, kubectl, podsettle

FLAGS = ClusterFlags("my config", "prod", "jane", ("ops", "on call"))
KUBECTL = "kubectl '--kubeconfig=my config' --context=prod --as=jane --as-group=ops"
OWN = "--as=jane --as-group=ops '--as-group=on call'"


def test_each_program_of_a_command_gets_the_flags_under_its_own_names() -> None:
    cases: list[tuple[Command, str]] = [
        (kubectl("-n", "a", "get", "pods"), f"{KUBECTL} '--as-group=on call' -n a get pods"),
        (
            (("helm", "upgrade", "a", "b"),),
            "helm '--kubeconfig=my config' --kube-context=prod --kube-as-user=jane "
            "--kube-as-group=ops '--kube-as-group=on call' upgrade a b",
        ),
        (
            podsettle("export", "p") + kubectl("apply", "-f", "-"),
            f"podsettle export '--kubeconfig=my config' --context=prod {OWN} p | "
            f"{KUBECTL} '--as-group=on call' apply -f -",
        ),
        (
            Right("list", "", "pods").command,
            f"{KUBECTL} '--as-group=on call' auth can-i list pods -A",
        ),
        ((), ""),
    ]
    assert [(command, FLAGS.command(command)) for command, _ in cases] == cases


def test_flags_that_were_not_given_or_are_empty_are_left_out() -> None:
    command = kubectl("get", "pods")
    for flags in (NO_FLAGS, ClusterFlags("", "", "")):
        assert flags.command(command) == "kubectl get pods"
