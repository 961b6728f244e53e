"""Tests of the pages: their commands, policies, links and paths are valid."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.markdown import ALL, Block, Page, Typed, commands_of, parse
from tests.support.page_commands import commands_of_script, write_files
from tests.support.paths import DOCS, ROOT
from webhook.cli import main
from webhook.core.constants import API_VERSION, KIND
from webhook.core.policy.model import parse_policy

PAGES = [Page(path) for path in ALL]
REPORTS = [
    page for page in PAGES if page.path.parent.name == "reports" and page.path.name != "README.md"
]
COMMANDS = [(page, typed) for page in PAGES for typed in page.commands]
SECTIONS = [
    "Symptom",
    "Check",
    "Policy",
    "Node configuration",
    "Seen by this project",
    "What podsettle cannot do",
]


def name_of(page: Page) -> str:
    return str(page.path.relative_to(ROOT))


def test_every_report_has_its_page_and_its_test() -> None:
    pages = {page.path.stem for page in REPORTS}
    modules = {path.stem for path in (ROOT / "tests" / "e2e" / "reports").glob("test_*.py")}
    assert len(pages) == 5
    assert modules == {f"test_{name.replace('-', '_')}" for name in pages}
    readme = Page(ROOT / "README.md")
    assert {f"docs/reports/{name}.md" for name in pages} <= {path for path, _ in readme.links}
    index = Page(DOCS / "reports" / "README.md")
    assert {(f"{name}.md", "seen-by-this-project") for name in pages} <= set(index.links)


@pytest.mark.parametrize("page", REPORTS, ids=name_of)
def test_page_of_a_report_has_the_six_sections(page: Page) -> None:
    order = list(SECTIONS)
    if any(typed.arguments[:1] == ("node-config",) for typed in page.commands):
        # Objects that direct pods to nodes must follow the configuration of the nodes.
        order.insert(2, order.pop(3))
    assert list(page.sections) == order
    assert all(len(text.strip()) > 4 for text in page.sections.values())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_a_file_and_its_heading(page: Page) -> None:
    for path, anchor in page.links:
        target = page.path.parent / path if path else page.path
        assert target.exists(), f"{page.path.name} links to {path}"
        if anchor:
            assert anchor in Page(target).anchors, f"{page.path.name} links to {path}#{anchor}"


PLACES = ("bench", "certs", "charts", "docs", "examples", "requirements", "tests", "webhook", ".ci")
NAMED_PATH = re.compile(rf"`((?:{'|'.join(map(re.escape, PLACES))})/[^`\s]*)`")
PLACEHOLDER = re.compile(r"[A-Z]{4}|\$")
"""A placeholder for a name, such as NAME or $REGISTRY."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_that_a_page_names_exist(page: Page) -> None:
    for path in NAMED_PATH.findall(page.text):
        if not PLACEHOLDER.search(path):
            assert list(ROOT.glob(path.rstrip("/"))), f"{name_of(page)} names {path}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    waiting, seen = [ROOT / "README.md"], set()
    while waiting:
        path = waiting.pop().resolve()
        if path in seen or path.suffix != ".md":
            continue
        seen.add(path)
        waiting += [path.parent / target for target, _ in Page(path).links if target]
    assert {path.resolve() for path in ALL} <= seen


@pytest.mark.parametrize(
    ("page", "typed"), COMMANDS, ids=[f"{page.path.stem}: {typed}" for page, typed in COMMANDS]
)
def test_commands_in_pages_parse(page: Page, typed: Typed) -> None:
    try:
        parse(typed)
    except click.UsageError as error:
        pytest.fail(f"{name_of(page)}: {typed}: {error.format_message()}")


def needs_no_cluster(typed: Typed) -> bool:
    """Whether a command reads only files that a page or the repository has."""
    name, *rest = typed.arguments
    if name == "explain":
        return "/" not in rest[0]
    made_by_a_command_before = {"nodes.yaml", "dump.json", "-"}
    return (name in ("node-config", "check", "certs") or "--manifests" in rest) and (
        made_by_a_command_before.isdisjoint(rest)
    )


LOCAL = [(page, typed) for page, typed in COMMANDS if typed.whole and needs_no_cluster(typed)]


@pytest.mark.parametrize(
    ("page", "typed"), LOCAL, ids=[f"{page.path.stem}: {typed}" for page, typed in LOCAL]
)
def test_commands_that_need_no_cluster_run_as_pages_print_them(
    page: Page, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tests/e2e/test_page_commands.py` runs the others."""
    write_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    done = CliRunner().invoke(main, typed.arguments)
    finds_something = typed.arguments[0] == "scan"
    assert done.exit_code == finds_something, f"{name_of(page)}: {done.output}"
    if typed.output and typed.arguments[0] == "node-config":
        assert tuple(done.stdout.splitlines()) == typed.output


@pytest.mark.parametrize("page", [p for p in PAGES if p.policies or p.fragments], ids=name_of)
def test_policies_in_pages_are_valid(page: Page) -> None:
    for document in page.policies:
        parse_policy(document)
    for fragment in page.fragments:
        spec = {"remedies": {"postInitSleep": {}}, **fragment}
        parse_policy(
            {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "a"}, "spec": spec}
        )


NO_PROPOSALS = {"policy.md", "image-config.md", "register.md", "releasing.md"}
"""The reference, a page about one key, and trials on API servers for tests."""


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.policies and p.path.name not in NO_PROPOSALS], ids=name_of
)
def test_policies_that_pages_propose_only_report_at_first(page: Page) -> None:
    assert {each["spec"].get("action") for each in page.policies} == {"Audit"}


def _increments(page: str) -> dict[str, float]:
    """The milliseconds that each tool adds to a pod's creation, from the table of the page."""
    table = page.split("## Pod creation")[1].split("##")[0]
    rows = re.findall(r"^\| ([^|]+) \|[^|]+\|[^|]+\| (\d+\.\d+) ms", table, re.MULTILINE)
    return {name: float(added) for name, added in rows}


@pytest.mark.parametrize(("name", "count"), [("limits.md", 8), ("why-not.md", 4)])
def test_quoted_ratios_are_those_of_the_performance_page(name: str, count: int) -> None:
    page = (DOCS / "performance.md").read_text()
    targets = page.split("## Targets")[1].split("##")[0]
    measured = set(re.findall(r"\| (\d+\.\d+) × \(", targets))
    missed = set(re.findall(r"\| (\d+\.\d+) × \([^|]+\| MISSED", targets))
    added = _increments(page)
    measured |= {
        f"{added[ours] / added[native]:.2f}"
        for ours in ("podsettle", "podsettle, cluster-wide policy")
        for native in ("native policy", "native policy, never reinvoked")
    }
    processors = page.split("<!-- processors: begin -->")[1].split("<!--")[0]
    measured |= {f"{float(ratio):.1f}" for ratio in re.findall(r"(\d+\.\d+) ×", processors)}
    quoted = [
        ratio
        for found in re.findall(r"(?:(\d+\.\d+) to )?(\d+\.\d+)\s+times", (DOCS / name).read_text())
        for ratio in found
        if ratio
    ]
    assert len(quoted) == count
    assert set(quoted) <= measured
    assert name != "limits.md" or missed <= set(quoted)


GUIDES = [page for page in PAGES if DOCS in page.path.parents and page.path.name[:2] != "00"]


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_page_says_for_whom_it_is_and_what_to_read_next(page: Page) -> None:
    _title, first, *_, last = page.text.rstrip().split("\n\n")
    assert re.search(r"\b(?:is|are) for\b", first), f"for whom? {first}"
    assert last.startswith("**Read next:** ")
    assert last.endswith(".")
    assert "](" in last


def test_index_of_the_documentation_has_every_page() -> None:
    index = Page(DOCS / "README.md")
    linked = {(DOCS / path).resolve() for path, _ in index.links if path}
    assert {page.path for page in GUIDES if page.path != index.path} <= linked


BUILDS = [
    block.text
    for name in ("install.md", "openshift.md")
    for block in Page(DOCS / name).blocks
    if re.search(r"kind: Job|kind: TaskRun|oc new-build", block.text)
]
"""The ways to build the images in a cluster: a Job, OpenShift's builds and a TaskRun."""


def test_build_in_a_cluster_takes_five_commands_at_most() -> None:
    assert len(BUILDS) == 3
    for text in BUILDS:
        assert len(commands_of_script(text)) <= 5, text


def test_builds_in_a_cluster_send_every_file_that_the_dockerfile_copies() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    files = {path.rstrip("/") for line in copied for path in line.split()}
    whole = {path for path in files if str(Path(path).parent) not in files}
    archives = re.findall(r"git archive --format=tar\.gz HEAD ([^|]+)", "".join(BUILDS))
    assert len(archives) == 2
    for archive in archives:
        named = set(archive.replace("\\\n", "").split())
        assert named == {"Dockerfile", *whole}


def test_steps_of_the_task_run_are_those_of_the_job() -> None:
    steps = [
        re.findall(r"^ +(tar .+|buildah .+)$", text.replace("$REGISTRY", "$registry"), re.M)
        for text in BUILDS
    ]
    job, builds, task_run = steps
    assert builds == []
    assert job == task_run
    assert len(job) == 5


def test_rollbacks_name_a_revision() -> None:
    """Without a number, Helm returns to the revision before, even if that one failed."""
    scripts = [block.text for page in PAGES for block in page.blocks if block.language == "sh"]
    rollbacks = re.findall(r"^helm rollback .*", "\n".join(scripts), re.MULTILINE)
    assert rollbacks
    assert all(re.match(r"helm rollback \S+ \d+ ", text) for text in rollbacks)


def test_previews_of_live_pods_leave_out_their_node() -> None:
    previews = [
        line
        for page in REPORTS
        for block in page.blocks
        for line in block.text.splitlines()
        if re.search("kubectl get pods? ", line) and "podsettle preview" in line
    ]
    assert len(previews) == 4
    for line in previews:
        assert "-o yaml | podsettle preview" in line
        assert "--manifests" not in line


def test_commands_in_consoles_and_scripts_are_found() -> None:
    """If the parser found no command, the other tests of this module would check nothing."""
    console = Block("console", "$ kubectl get x | podsettle preview --manifests c - | less\nout\n")
    (typed,) = commands_of(console)
    assert typed == Typed(("preview", "--manifests", "c", "-"), ("out",))
    script = Block("sh", 'if a=$(podsettle wait "$p" \\\n  -c s); then kubectl settle logs p; fi\n')
    assert [typed.arguments for typed in commands_of(script)] == [
        ("wait", "$p", "-c", "s"),
        ("logs", "p"),
    ]
    for wrong in (("wait",), ("wait", "p", "--until"), ("hold", "p"), ("node-config", "docker")):
        with pytest.raises(click.UsageError):
            parse(Typed(wrong))
    assert len([typed for _, typed in COMMANDS if typed.whole]) > 20
    assert sum(len(page.policies) for page in PAGES) > 8
    assert sum(len(page.fragments) for page in PAGES) > 2


UNOWNED = re.compile(
    # An image of Docker Hub, or of another public registry.
    r"(?<![\w./}$\"-])podsettle/(?:podsettle|linger)(?![\w-])"
    r"|\b(?:docker\.io|ghcr\.io|quay\.io|gcr\.io|public\.ecr\.aws)/\S*(?:podsettle|linger)"
    # A package, or a chart's repository.
    r"|\b(?:pipx?|uv|brew|krew|npm|apt|dnf)\b[^\n|`]* (?:install|run) [^\n|`/.]*\bpodsettle\b"
    r"|helm repo add|oci://(?!\$REGISTRY/)|pypi\.org/project/podsettle|artifacthub\.io(?!/license\b)"
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


@pytest.mark.parametrize(
    "promise",
    [
        "repository: podsettle/podsettle",
        "docker pull podsettle/linger:0.1.0",
        "image: ghcr.io/podsettle/podsettle",
        "pip install podsettle",
        "pip install --user 'podsettle[all]'",
        "kubectl krew install podsettle",
        "helm repo add podsettle https://podsettle.example",
        "helm install podsettle oci://registry.example/podsettle",
    ],
)
def test_promise_of_a_foreign_image_is_detected(promise: str) -> None:
    assert UNOWNED.search(promise)
