"""Tests of the pages: their commands, policies, links and paths are valid.

Each test reports all faults of all pages at once.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from docs.site import files_of_site, navigation
from tests.support.markdown import ALL, Block, Page, Typed, commands_of, parse
from tests.support.page_commands import commands_of_script, write_files
from tests.support.paths import DOCS, ROOT
from webhook.cli import main
from webhook.core.constants import API_VERSION, KIND
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.policy.model import parse_policy

PAGES = [Page(path) for path in ALL]
GUIDES = [page for page in PAGES if DOCS in page.path.parents and page.path.name[:2] != "00"]
COMMANDS = [(page, typed) for page in PAGES for typed in page.commands]


def name_of(page: Page) -> str:
    return str(page.path.relative_to(ROOT))


def test_links_lead_to_a_file_and_its_heading() -> None:
    wrong = []
    for page in PAGES:
        for path, anchor in page.links:
            target = page.path.parent / path if path else page.path
            if not target.exists() or (anchor and anchor not in Page(target).anchors):
                wrong.append(f"{name_of(page)} links to {path}#{anchor}")
    assert wrong == []


PLACES = ("bench", "certs", "charts", "docs", "examples", "lab", "requirements", "tests", "webhook")
NAMED_PATH = re.compile(rf"`((?:{'|'.join(PLACES)}|\.ci)/[^`\s]*)`")
PLACEHOLDER = re.compile(r"[A-Z]{4}|\$")
"""A placeholder for a name, such as NAME or $REGISTRY."""


def test_paths_that_pages_name_exist() -> None:
    wrong = [
        f"{name_of(page)} names {path}"
        for page in PAGES
        for path in NAMED_PATH.findall(page.text)
        if not PLACEHOLDER.search(path) and not list(ROOT.glob(path.rstrip("/")))
    ]
    assert wrong == []


def test_every_page_is_reached_from_the_readme_and_once_in_the_navigation() -> None:
    files = files_of_site()
    assert {path.resolve() for path in ALL} <= {ROOT / path for path in files}
    sections = [pages for entry in navigation(files) for pages in entry.values()]
    listed = [page for pages in sections for page in pages]
    assert sorted(listed) == sorted(str(path) for path in files if path.suffix == ".md")


def test_commands_in_pages_parse() -> None:
    wrong = []
    for page, typed in COMMANDS:
        try:
            parse(typed)
        except click.UsageError as error:
            wrong.append(f"{name_of(page)}: {typed}: {error.format_message()}")
    assert wrong == []


def needs_no_cluster(typed: Typed) -> bool:
    """Whether a command reads only files that a page or the repository has."""
    name, *rest = typed.arguments
    if name == "explain":
        return "/" not in rest[0]
    made_by_a_command_before = {"nodes.yaml", "dump.json", "-"}
    return (name in ("node-config", "check", "certs") or "--manifests" in rest) and (
        made_by_a_command_before.isdisjoint(rest)
    )


@pytest.mark.parametrize("page", [page for page in PAGES if page.commands], ids=name_of)
def test_commands_that_need_no_cluster_run_as_pages_print_them(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tests/e2e/test_page_commands.py` runs the others."""
    write_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for typed in page.commands:
        if typed.whole and needs_no_cluster(typed):
            done = CliRunner().invoke(main, typed.arguments)
            finds_something = typed.arguments[0] == "scan"
            assert done.exit_code == finds_something, f"{typed}: {done.output}"
            if typed.output and typed.arguments[0] == "node-config":
                assert tuple(done.stdout.splitlines()) == typed.output


def test_commands_in_consoles_and_scripts_are_found() -> None:
    """If the parser found no command, the other tests of this module would check nothing."""
    console = Block("console", "$ kubectl get x | podsettle preview --manifests c - | less\nout\n")
    (typed,) = commands_of(console)
    assert typed == Typed(("preview", "--manifests", "c", "-"), ("out",))
    script = Block("sh", 'if a=$(podsettle wait "$p" \\\n  -c s); then kubectl settle logs p; fi\n')
    found = [typed.arguments for typed in commands_of(script)]
    assert found == [("wait", "$p", "-c", "s"), ("logs", "p")]
    for wrong in (("wait",), ("wait", "p", "--until"), ("hold", "p"), ("node-config", "docker")):
        with pytest.raises(click.UsageError):
            parse(Typed(wrong))
    assert len([typed for _, typed in COMMANDS if typed.whole]) > 20
    assert sum(len(page.policies) for page in PAGES) > 8
    assert sum(len(page.fragments) for page in PAGES) > 0


NO_PROPOSALS = {"policy.md", "policies.md", "releasing.md"}
"""References, and trials on API servers for tests."""


def test_policies_in_pages_are_valid_and_only_report_at_first() -> None:
    for page in PAGES:
        for document in page.policies:
            parse_policy(document)
            if page.path.name not in NO_PROPOSALS:
                assert document["spec"].get("action") == "Audit", name_of(page)
        for fragment in page.fragments:
            spec = {"remedies": {"postInitSleep": {}}, **fragment}
            policy = {"kind": KIND, "metadata": {"name": "a"}, "spec": spec}
            parse_policy({"apiVersion": API_VERSION, **policy})


def test_page_says_for_whom_it_is_and_what_to_read_next() -> None:
    wrong = []
    for page in GUIDES:
        _title, first, *_, last = page.text.rstrip().split("\n\n")
        is_for = re.search(r"\b(?:is|are) for\b", first)
        if not is_for or not re.fullmatch(r"\*\*Read next:\*\* .*\]\(.*\.", last, re.DOTALL):
            wrong.append(name_of(page))
    assert wrong == []


def test_index_of_the_documentation_has_every_page() -> None:
    index = Page(DOCS / "README.md")
    linked = {(DOCS / path).resolve() for path, _ in index.links if path}
    assert {page.path for page in GUIDES if page.path != index.path} <= linked


def test_page_of_a_fault_says_how_to_find_and_to_cure_it() -> None:
    for name in {defect.page for defect in DEFECTS}:
        page = Page(DOCS / name)
        assert {"Symptom", "Check", "Seen by this project"} <= page.sections.keys(), name


BUILDS = [
    block.text
    for name in ("install.md", "openshift.md")
    for block in Page(DOCS / name).blocks
    if re.search(r"kind: Job|kind: TaskRun|oc new-build", block.text)
]
"""The ways to build the images in a cluster: a Job, OpenShift's builds and a TaskRun."""


def test_builds_in_a_cluster_are_short_and_send_every_file_that_the_dockerfile_copies() -> None:
    assert len(BUILDS) == 3
    assert all(len(commands_of_script(text)) <= 5 for text in BUILDS)
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )
    files = {path.rstrip("/") for line in copied for path in line.split()}
    whole = {path for path in files if str(Path(path).parent) not in files}
    archives = re.findall(r"git archive --format=tar\.gz HEAD ([^|]+)", "".join(BUILDS))
    named = [set(archive.replace("\\\n", "").split()) for archive in archives]
    assert named == [{"Dockerfile", *whole}] * 2


def test_steps_of_the_task_run_are_those_of_the_job() -> None:
    job, builds, task_run = [
        re.findall(r"^ +(tar .+|buildah .+)$", text.replace("$REGISTRY", "$registry"), re.M)
        for text in BUILDS
    ]
    assert (len(job), builds, task_run) == (5, [], job)


def test_rollbacks_name_a_revision() -> None:
    """Without a number, Helm returns to the revision before, even if that one failed."""
    scripts = [block.text for page in PAGES for block in page.blocks if block.language == "sh"]
    rollbacks = re.findall(r"^helm rollback .*", "\n".join(scripts), re.MULTILINE)
    assert rollbacks
    assert all(re.match(r"helm rollback \S+ \d+ ", text) for text in rollbacks)


def test_previews_of_live_pods_leave_out_their_node() -> None:
    lines = [line for page in PAGES for block in page.blocks for line in block.text.splitlines()]
    previews = [line for line in lines if re.search("kubectl get pods? .*podsettle preview", line)]
    assert len(previews) >= 3
    for line in previews:
        assert "-o yaml | podsettle preview" in line
        assert "--manifests" not in line


UNOWNED = re.compile(
    # An image of Docker Hub, or of another public registry.
    r"(?<![\w./}$\"-])podsettle/(?:podsettle|linger)(?![\w-])"
    r"|\b(?:docker\.io|ghcr\.io|quay\.io|gcr\.io|public\.ecr\.aws)/\S*(?:podsettle|linger)"
    # A package, or a chart's repository.
    r"|\b(?:pipx?|uv|brew|krew|npm|apt|dnf)\b[^\n|`]* (?:install|run) [^\n|`/.]*\bpodsettle\b"
    r"|helm repo add|oci://(?!\$REGISTRY/)|pypi\.org/project/podsettle|artifacthub\.io(?!/(?:license|crds)\b)"
)
"""Names of images and packages that the project does not own, or not yet."""


def test_nothing_promises_an_image_or_a_package_that_is_not_the_projects() -> None:
    """The owner of such a name would get the rights of each installation that uses the page."""
    told = [
        path
        for directory in ("docs", "charts", "examples", "certs", "webhook")
        for path in (ROOT / directory).rglob("*")
        if path.suffix in (".md", ".yaml", ".json", ".tpl", ".txt", ".py", ".html")
    ]
    assert len(told) > 100
    for path in (*told, *ROOT.glob("*.md"), ROOT / "Dockerfile"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not UNOWNED.search(line), f"{path.relative_to(ROOT)}: {line.strip()}"
    for promise in (
        "repository: podsettle/podsettle",
        "image: ghcr.io/podsettle/podsettle",
        "pip install --user 'podsettle[all]'",
        "kubectl krew install podsettle",
        "helm repo add podsettle https://podsettle.example",
        "helm install podsettle oci://registry.example/podsettle",
    ):
        assert UNOWNED.search(promise), promise


DECISIONS = [Page(path) for path in sorted((DOCS / "adr").glob("[0-9]*.md"))]
DECISION = re.compile(
    r"# (?P<title>\d+\. .+)\n\n\*\*Accepted, (?P<date>[\d-]{10})\.\*\*\n\n\*\*Decision\.\*\* .*"
    r"\*\*Reason\.\*\* .*\*\*What would change it\.\*\* .*",
    re.DOTALL,
)


def test_index_lists_every_decision_with_its_title_and_date() -> None:
    rows = [line for line in Page(DOCS / "adr/README.md").text.splitlines() if "](0" in line]
    expected = []
    for page in DECISIONS:
        found = DECISION.fullmatch(page.text)
        assert found, page.path.name
        assert found["title"].startswith(f"{int(page.path.name[:4])}. "), page.path.name
        expected.append(f"| [{found['title']}]({page.path.name}) | {found['date']} |")
    assert rows == expected
