"""The preview page: its document, and its behaviour in a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import httpx
import yaml

from tests.support.chromium import (
    CONTROL,
    END,
    ENTER,
    LEFT,
    SHIFT,
    TAB,
    Chromium,
)
from tests.support.preview_page import (
    BROKEN,
    MIXED,
    UNCHANGED,
    WARNED,
    allow_clipboard,
    focused,
    open_example,
    preview,
    preview_again,
    value_of,
    wait_for_answer,
    wait_for_policies,
)
from webhook.core.printable import printable

# At most 63 characters: a longer container name matches no glob, and the page would not show it.
_HOSTILE = '<img src=x onerror="pwned=1"><script>pwned=1</script>'

# Characters that are invisible, or that change the order of a text or of a terminal's output.
_HIDDEN = "\u202e\u2066\u061c\u200b\u3164\U000e0041"

# Texts that are hard to write in YAML: other types, syntax, indentation, line ends, characters.
_TEXTS = "|".join(
    (
        "-|--|-c|---|~|#|=|<<|%|{|*|!|'|\"|\\|null|Yes|off|.5|.inf|1|0x1f|1e3|1_0|1:30|10ms",
        "2001-01-01||- a|a: b|a #b|a:|a | a|!x|tab\there|\u00e9|\ufeff|\x85|\u2028a|\U0001f600",
        "a\n|a\nb|a\n\n|a\n \nb| a\nb|\na|a\n  b\n\n c\n|a\r\nb|a\n |a\u2028\nb",
        "\u202ea|\xa0|\u3164|\U000e0041|a\n\u2066b\n|a\n\U0001f600\n|a\uff01\n\ufffd\n",
    )
).split("|")


def answer_to(http: httpx.Client, workload: str) -> dict[str, Any]:
    """The server's answer for the first pod, without the page."""
    answer = http.post("/preview", content=workload).raise_for_status().json()
    pod: dict[str, Any] = answer["pods"][0]
    return pod


# The document


def test_page_is_one_small_document(http: httpx.Client) -> None:
    response = http.get("/")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert int(response.headers["Content-Length"]) < 64_000


def test_content_security_policy_allows_only_the_pages_style_and_script(http: httpx.Client) -> None:
    response = http.get("/")
    policy = dict(
        directive.split(" ", 1)
        for directive in response.headers["Content-Security-Policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for tag in ("style", "script"):
        (block,) = re.findall(f"<{tag}>(.*?)</{tag}>", response.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"


def test_links_lead_to_existing_routes(page: Chromium, http: httpx.Client) -> None:
    links = page.run("return [...document.links].map((link) => link.href)")
    origin = page.run("return origin")
    assert links == [f"{origin}/{path}" for path in ("readyz?verbose", "openapi.json")]
    assert [http.get(link).status_code for link in links] == [200, 200]


# Previews


def test_example_shows_reasons_and_diff(page: Chromium) -> None:
    open_example(page, "Tekton")
    assert page.texts(".pod h3") == ["Pod/echo-run-pod"]
    assert page.text("#status") == "1 pod, 1 changed, 0 warnings"
    assert "tekton-on-crio" in page.text(".facts")
    reasons = [text for text in page.texts(".reasons li") if "postInitSleep" in text]
    assert any("Applied" in text and "prepare" in text for text in reasons)
    added = page.texts("[role=tabpanel] ins")
    assert "+    podsettle.dev/applied: tekton-on-crio/postInitSleep\n" in added
    assert all(line.startswith("+") for line in added)


def test_page_opens_on_its_first_example_with_the_result(page: Chromium) -> None:
    page.open(page.run("return location.href"))
    wait_for_policies(page)
    wait_for_answer(page)
    assert page.text("#example-note").startswith('An example. Tekton: "prepare" exited with')
    assert page.texts("#example-mark") == ["Of an example"]
    assert page.texts(".pod h3") == ["Pod/echo-run-pod"]
    assert value_of(page, "#namespace") == "ci"
    assert focused(page) == "workload"
    # An edit keeps the example, and another workload leaves nothing of it.
    page.paste("#workload", value_of(page, "#workload").replace("restartPolicy: Never", ""))
    assert value_of(page, "#labels") == "team=ci"
    assert page.texts(".policy.edited .name") == ["tekton-on-crio"]
    preview(page, UNCHANGED)
    assert page.texts("#example-note, #example-mark, .policy.edited") == []
    assert value_of(page, "#namespace") + value_of(page, "#labels") == ""
    assert page.texts(".pod h3") == ["Pod/unchanged"]


def test_workload_that_is_pasted_into_an_example_replaces_it(page: Chromium) -> None:
    open_example(page, "Tekton")
    for text, selected in (("busybox:1", False), ("kind: Pod", True), ('{"kind": "Pod"}', True)):
        found = page.run(
            "const area = document.querySelector('#workload'); area.setSelectionRange(9, 9);"
            "const data = new DataTransfer(); data.setData('text', arguments[0]);"
            "area.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data}));"
            "return area.selectionEnd - area.selectionStart === area.value.length",
            text,
        )
        assert found is selected, text


def test_states_are_shown_as_words(page: Chromium) -> None:
    preview(page, WARNED)
    assert page.texts(".pod summary .chip") == ["Changed", "1 warning"]
    applied, missing, *_ = page.texts(".reasons li")
    assert applied.startswith("ChangedpostInitSleep · Appliedby tekton-on-crioContainer wrapped: ")
    assert missing.startswith(
        "WarningpostInitSleep · NoCommandby tekton-on-crioContainers bare, naked: "
    )
    assert "podsettle: postInitSleep: NoCommand: bare, naked:" in page.text(".warnings")


def test_unchanged_pod_is_shown_as_unchanged(page: Chromium) -> None:
    preview(page, UNCHANGED)
    assert page.texts(".pod summary .chip") == ["Unchanged"]
    assert page.text(".reasons").startswith("UnchangedProtectedNamespace")
    assert "Nothing changes" in page.text("[role=tabpanel]")
    assert page.texts(".warns") == []


def test_tabs_show_the_servers_answer(page: Chromium, http: httpx.Client) -> None:
    expected = answer_to(http, WARNED)
    preview(page, WARNED)
    assert page.text("[role=tabpanel]") == expected["diff"]
    page.click("[role=tab]", "Patch")
    assert json.loads(page.text("[role=tabpanel]")) == expected["patch"]
    page.click("[role=tab]", "JSON")
    assert json.loads(page.text("[role=tabpanel]")) == expected["after"]


def test_yaml_is_parsed_back_to_the_same_values(page: Chromium) -> None:
    values = [{text: text, "l": [text, [text, []], {"a": text, "b": {}}]} for text in _TEXTS]
    written = page.run("return arguments[0].map((value) => yaml(value))", values)
    assert [yaml.safe_load(text) for text in written] == values
    assert page.run("return yaml({a: [1, 0.5, null, true]})") == "a:\n- 1\n- 0.5\n- null\n- true"


def test_many_pods_are_collapsed_until_they_are_opened(page: Chromium) -> None:
    preview(page, "---\n".join([UNCHANGED] * 6 + [WARNED]))
    assert page.text("#status") == "7 pods, 1 changed, 1 warning"
    assert page.texts(".reasons") == []
    page.click("summary", "Pod/warned")
    page.wait_for("document.querySelector('.reasons li')")
    assert len(page.texts(".reasons")) == 1


def test_objects_without_a_pod_are_listed_after_the_pods(page: Chromium) -> None:
    preview(page, MIXED)
    assert page.texts(".pod h3") == ["Pod/p"]
    expected = "1 pod, 0 changed, 0 warnings, 1 unreadable object, 2 objects without a pod"
    assert page.text("#status") == expected
    unreadable, passed_over = page.texts(".without")
    assert unreadable.startswith("Unreadable objectsLine 7 items[2] has no kind")
    assert passed_over.startswith("Objects without a podLine 5 Service/web: a Service holds no pod")
    assert "kubectl get pod -n ci -l tekton.dev/taskRun=build -o yaml" in passed_over
    page.click(".without button", "Line 8")
    selected = page.run(
        "const area = document.querySelector('#workload');"
        "return area.value.slice(area.selectionStart, area.selectionEnd)"
    )
    assert selected.startswith("- {apiVersion: tekton.dev/v1")
    preview(page, UNCHANGED)
    assert page.texts(".without") == []


def test_fields_are_sent_as_query_parameters(page: Chromium) -> None:
    page.type("#namespace", "elsewhere")
    page.type("#labels", "team=build, storage=large")
    page.type("#path", "spec.worker.template")
    template = "{spec: {containers: [{name: main, image: registry.example/main}]}}"
    head = "apiVersion: example.com/v1\nkind: Farm\nmetadata: {name: x}"
    preview(page, f"{head}\nspec: {{worker: {{template: {template}}}}}")
    assert page.texts(".pod h3") == ["Farm/x"]
    assert page.texts(".facts dd") == [
        "elsewhere",
        "large-volumes, many-files, relabel-on-1-37",
        "spec.worker.template",
    ]
    (sent,) = [request for request in page.requests() if request["method"] == "POST"]
    assert sent["url"].endswith(
        "/preview?namespace=elsewhere&namespaceLabel=team%3Dbuild&namespaceLabel=storage%3Dlarge"
        "&templatePath=spec.worker.template"
    )


def test_results_of_an_earlier_input_are_marked(page: Chromium) -> None:
    preview(page, UNCHANGED)
    page.type("#namespace", "x")
    assert page.text("#status") == "Result of an earlier input"
    assert len(page.texts(".stale .pod")) == 1
    preview_again(page)
    assert page.texts(".facts dd")[0] == "x"


def test_copy_button_copies_the_tab(page: Chromium, http: httpx.Client) -> None:
    allow_clipboard(page)
    preview(page, WARNED)
    page.click(".tools button")
    page.wait_for("document.querySelector('.tools button').textContent === 'Copied'")
    assert page.run("return navigator.clipboard.readText()") == answer_to(http, WARNED)["diff"]


# Errors


def test_error_is_shown_below_the_input_with_its_line(page: Chromium, http: httpx.Client) -> None:
    detail = http.post("/preview", content=BROKEN).json()["detail"]
    preview(page, BROKEN)
    assert page.text("#error .mono") == detail
    assert page.texts("#error") != []
    assert page.run(
        "const area = document.querySelector('#workload');"
        "return area.getAttribute('aria-invalid') === 'true'"
        " && area.getAttribute('aria-describedby').includes('error')"
    )
    page.click("#error button", "Go to line 4")
    selected = "return getSelection().toString()"
    assert page.run(selected) == "  labels: {a: b: c}"


def test_error_keeps_the_earlier_result_and_says_so(page: Chromium) -> None:
    preview(page, UNCHANGED)
    preview(page, BROKEN)
    assert page.texts(".stale .pod h3") == ["Pod/unchanged"]
    assert page.text("#status") == "Result of an earlier input"
    preview(page, UNCHANGED)
    assert page.texts("#error") == []
    assert page.run("return document.querySelector('[aria-invalid]')") is None


def test_http_errors_have_titles(page: Chromium) -> None:
    for status, title in (
        (429, "The server makes other previews"),
        (502, "The server failed (502 Refused)"),
        (401, "Enter a valid bearer token below (401 Refused)"),
        (403, "The token does not allow previews (403 Refused)"),
    ):
        page.run(
            "window.fetch = async () => new Response(JSON.stringify({detail: 'said <b>so</b>'}),"
            "{status: arguments[0], statusText: 'Refused'})",
            status,
        )
        preview(page, UNCHANGED)
        page.wait_for("document.querySelector('#error .label').textContent === arguments[0]", title)
        assert page.text("#error .mono") == "said <b>so</b>"
        assert (focused(page) == "token") is (status in {401, 403})


def test_unreachable_server_is_reported(page: Chromium) -> None:
    page.run("window.fetch = async () => { throw new TypeError('Failed to fetch'); }")
    preview(page, UNCHANGED)
    assert page.text("#error") == "No answer from the serverFailed to fetch"


# Security


def test_hostile_pod_cannot_run_scripts(page: Chromium) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": _HOSTILE,
            "namespace": _HOSTILE,
            "labels": {"tekton.dev/taskRun": _HOSTILE, _HOSTILE: _HOSTILE},
            "annotations": {_HOSTILE: f"{_HOSTILE}\n</pre>{_HOSTILE}"},
        },
        "spec": {
            "restartPolicy": "Never",
            "initContainers": [{"name": _HOSTILE, "image": _HOSTILE, "command": ["sh", _HOSTILE]}],
            "containers": [{"name": f"`{_HOSTILE}`", "image": _HOSTILE}],
        },
    }
    page.run("window.elements = document.querySelectorAll('img, script').length")
    page.type("#labels", "team=ci")
    preview(page, json.dumps(pod))
    assert page.texts(".pod h3") == [f"Pod/{_HOSTILE}"]
    assert f"Container {_HOSTILE}: " in page.text(".reasons")
    for tab in ("Diff", "Patch", "YAML", "JSON"):
        page.click("[role=tab]", tab)
        assert "<img src=x" in page.text("[role=tabpanel]")
    # Errors contain kinds and paths.
    preview(page, json.dumps({"kind": _HOSTILE}))
    assert f"a {_HOSTILE} holds no pod" in page.text("#error")
    preview(page, json.dumps({"kind": "List", "items": [{"kind": _HOSTILE}, pod]}))
    assert f"a {_HOSTILE} holds no pod" in page.text(".without")
    assert page.run("return document.querySelectorAll('img, script').length === window.elements")
    assert page.run("return window.pwned") is None
    assert [r["url"] for r in page.requests() if r["url"].endswith("/x")] == []


def test_page_shows_escapes_of_characters_that_deceive_a_reader(
    page: Chromium, http: httpx.Client
) -> None:
    pod = yaml.safe_load(WARNED)
    pod["metadata"] |= {"name": _HIDDEN, "annotations": {f"a{_HIDDEN}": f"b\n{_HIDDEN}\n"}}
    pod["spec"]["initContainers"][0]["command"] = ["sh", "-c", f"true # {_HIDDEN}\nexit"]
    pod["spec"]["initContainers"][1]["name"] = _HIDDEN
    expected = answer_to(http, json.dumps(pod))["after"]
    preview(page, json.dumps(pod))
    shown = []
    for tab in ("Diff", "Patch", "YAML", "JSON"):
        page.click("[role=tab]", tab)
        shown.append(page.text("[role=tabpanel]"))
        assert "\\u202e" in shown[-1]
        assert not set(_HIDDEN) & set(page.run("return document.body.textContent"))
    assert yaml.safe_load(shown[2]) == json.loads(shown[3]) == expected
    assert page.texts(".pod h3") == [f"Pod/{printable(_HIDDEN)}"]
    assert f"Containers {printable(_HIDDEN)}, naked: " in page.text(".reasons")
    preview(page, json.dumps({"kind": _HIDDEN}))
    assert f"a {printable(_HIDDEN)} holds no pod" in page.text("#error")
    preview(page, json.dumps({"kind": "List", "items": [{"kind": _HIDDEN}, pod]}))
    assert f"a {printable(_HIDDEN)} holds no pod" in page.text(".without")


def test_browser_refuses_scripts_that_are_not_the_pages(page: Chromium) -> None:
    refused = page.run(
        "const script = document.createElement('script');"
        "try { script.text = 'window.pwned = true'; document.body.append(script); }"
        "catch { return true; }"
    )
    assert refused
    assert page.run("return window.pwned") is None
    # The violation is expected here. Reading the console also clears it.
    assert [entry["source"] for entry in page.console()] != []


# Accessibility and small windows


def test_page_can_be_used_with_the_keyboard_alone(page: Chromium) -> None:
    page.wait_for("document.activeElement.id === 'workload'")
    page.paste("#workload", WARNED)
    page.press(CONTROL, ENTER)
    wait_for_answer(page)
    assert page.texts(".pod h3") == ["Pod/warned"]
    visited = []
    for _ in range(7):
        page.press(TAB)
        visited.append(focused(page))
    fields = ["namespace", "labels", "path"]
    assert visited == [*fields, "preview", "example", "copy-link", "add-policy"]
    for _ in page.texts(".policy"):
        page.press(TAB)
        assert page.run("return document.activeElement.matches('.policy > summary')")
    page.press(TAB)
    assert page.run("return document.activeElement.matches('.pod > summary')")
    page.press(ENTER)
    page.wait_for("!document.querySelector('.pod').open")
    page.press(ENTER)
    page.wait_for("document.querySelector('.pod').open")
    # In between are only elements that unfold a text.
    page.press(TAB)
    while page.run("return document.activeElement.tagName") == "SUMMARY":
        page.press(TAB)
    for key, tab in ((END, "JSON"), (LEFT, "YAML")):
        page.press(key)
        assert page.run("return document.activeElement.textContent") == tab
        assert page.texts("[role=tab][aria-selected=true]") == [tab]
    assert page.text("[role=tabpanel]").startswith("apiVersion: v1\nkind: Pod\n")
    page.press(SHIFT, TAB)
    assert page.run("return document.activeElement.tagName") == "SUMMARY"


def test_inserting_the_example_can_be_undone(page: Chromium) -> None:
    page.paste("#workload", "mine")
    open_example(page, "Tekton")
    page.run("document.querySelector('#workload').focus()")
    page.press(CONTROL, "z")
    page.wait_for("document.querySelector('#workload').value === 'mine'")


def test_every_control_has_an_accessible_name(page: Chromium) -> None:
    preview(page, WARNED)
    tree = page.devtools("Accessibility.getFullAXTree")["nodes"]
    controls = {
        "textbox",
        "combobox",
        "button",
        "tab",
        "tabpanel",
        "link",
        "form",
        "region",
        "navigation",
    }
    found = {
        (node["role"]["value"], node["name"]["value"])
        for node in tree
        if not node["ignored"] and node["role"]["value"] in controls
    }
    assert {role for role, _ in found} == controls
    assert [role for role, name in found if not name] == []
    assert {"main", "banner"} <= {node["role"]["value"] for node in tree if not node["ignored"]}
    assert page.run("return document.querySelector('#results [role=status]').id") == "status"
