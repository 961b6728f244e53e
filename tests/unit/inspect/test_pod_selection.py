"""Selectors of pods, as kubectl's flags have them."""

from __future__ import annotations

import pytest

from webhook.inspect.pod_selection import PodSelection, SelectorError

POD = {
    "metadata": {"name": "p", "namespace": "ci", "labels": {"app": "web", "example.com/tier": ""}},
    "spec": {"nodeName": "worker-1"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("", True),
        ("app=web", True),
        ("app == web", True),
        ("app=db", False),
        ("app!=db", True),
        ("absent!=db", True),
        ("app in (db, web),example.com/tier", True),
        ("app notin (db,web)", False),
        ("absent notin (db)", True),
        ("!absent", True),
        ("app,!example.com/tier", False),
        ("example.com/tier=", True),
    ],
)
def test_label_selector_selects_as_kubectl_does(selector: str, selected: bool) -> None:
    assert PodSelection(labels=selector).selects(POD) is selected


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("spec.nodeName=worker-1", True),
        ("spec.nodeName==worker-1,status.phase=Running", True),
        ("spec.nodeName=worker-1,status.phase!=Running", False),
        ("spec.nodeName=", False),
        ("spec.hostNetwork=false", True),
    ],
)
def test_field_selector_selects_as_kubectl_does(selector: str, selected: bool) -> None:
    assert PodSelection(fields=selector).selects(POD) is selected


@pytest.mark.parametrize(
    "selection",
    [
        PodSelection(labels="app=a b"),
        PodSelection(labels="a=b=c"),
        PodSelection(labels="app in web"),
        PodSelection(labels="-bad=x"),
        PodSelection(fields="spec.nodeName"),
        PodSelection(fields="spec.containers=x"),
    ],
)
def test_selector_that_cannot_be_read_is_an_error(selection: PodSelection) -> None:
    with pytest.raises(SelectorError):
        selection.check()
