"""Tests of the options and exit codes that all commands share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.kubeconfigs import write_kubeconfig
from tests.support.paths import EXAMPLES
from tests.support.process import PODSETTLE, free_port, podsettle, run
from webhook import __version__
from webhook.cli import main
from webhook.cli.options import DURATION, KUBECTL_DURATION


def test_version_option_prints_the_version_of_the_package() -> None:
    assert podsettle("--version").stdout == f"podsettle, version {__version__}\n"


@pytest.mark.parametrize("command", [
    "serve", "preview", "check", "wait", "logs", "certs", "version",
])  # fmt: skip
def test_help_of_every_command_fits_into_100_columns(command: str) -> None:
    done = podsettle(command, "--help")
    assert done.returncode == 0
    assert command in podsettle("--help").stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_output_that_cannot_be_written_is_one_message_and_exit_code_2() -> None:
    manifests = ["--manifests", EXAMPLES]
    for words in (
        ["--help"], ["--version"], ["help", "scan"], ["completion", "bash"],
        ["scan", "--manifests", EXAMPLES / "scan"], ["preview", EXAMPLES / "pods", *manifests],
        ["check", EXAMPLES, "-o", "json"], ["explain", "NoCommand"],
        ["export", "many-files", *manifests],
    ):  # fmt: skip
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [PODSETTLE, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        message = "podsettle: the output cannot be written: No space left on device"
        assert (done.returncode, done.stderr.splitlines()[-1]) == (2, message), words
        assert "Traceback" not in done.stderr


def test_kubectl_plugin_prints_the_version() -> None:
    plugin = Path(PODSETTLE).with_name("kubectl-settle")
    done = run(plugin, "--version", check=True)
    assert done.stdout == f"podsettle, version {__version__}\n"


SCAN = ["scan", "--manifests", str(EXAMPLES / "scan")]


@pytest.mark.parametrize(
    "words",
    [
        [*SCAN, "-n=other"],
        ["-n=other", *SCAN],
        ["-n", "other", *SCAN],
        ["--namespace", "other", *SCAN],
        ["--namespace=other", *SCAN],
    ],
)
def test_namespace_is_taken_in_the_forms_of_kubectl(words: list[str]) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert result.stderr.startswith("podsettle: scan: namespace other is not in")


def test_flag_before_a_command_that_lacks_it_is_refused() -> None:
    result = CliRunner().invoke(main, ["-n", "ci", "help"])
    assert result.exit_code == 2
    assert "flags follow the command" not in result.stderr


def test_error_about_a_flag_before_the_command_says_where_it_belongs() -> None:
    result = CliRunner().invoke(main, ["-A", "scan"])
    assert result.exit_code == 2
    assert "flags follow the command: podsettle COMMAND -A" in result.stderr


def test_unknown_option_exits_with_2() -> None:
    done = podsettle("preview", "--no-such-option")
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--backoff-total", "99999999999h"),
        ("--backoff-first", "99999999999h"),
        ("--backoff-jitter", "nan"),
        ("--backoff-factor", "nan"),
        ("--backoff-factor", "inf"),
    ],
)
def test_invalid_back_off_option_exits_with_2(option: str, value: str) -> None:
    """Any other exit code of `wait` may be that of the container."""
    done = podsettle("wait", "pod", option, value)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"Error: Invalid value for '{option}'" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scan", "--as", "a\nb"], "'a\\nb' is not a name"),
        (["scan", "-n", "A"], "'A' is not a valid name"),
        (["logs", ""], "'' is not a valid name"),
        (["wait", ""], "'' is not a valid name"),
        (["wait", "a", "-n", "../x"], "'../x' is not a valid name"),
        (["logs", "deploy/a"], "'deploy/a' is not a pod: give NAME or pod/NAME"),
        (["wait", "deployment/a"], "'deployment/a' is not a pod: give NAME or pod/NAME"),
        (["wait", "p", "--timeout", "1x"], "'1x' is not a duration"),
        (["preview", "--linger-image", "A B", "-"], "'A B' is not an image reference"),
        (["preview", "--namespace-label", "a", "-"], "'a' is not of the form key=value"),
    ],
)
def test_value_that_an_option_cannot_have_is_refused(words: list[str], message: str) -> None:
    done = podsettle(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_duration_may_be_a_number_of_seconds_where_kubectl_has_it() -> None:
    assert KUBECTL_DURATION.convert("90", None, None) == timedelta(seconds=90)
    with pytest.raises(click.BadParameter, match="is not a duration"):
        DURATION.convert("90", None, None)


@pytest.mark.parametrize("arguments", [
    ("doctor",), ("scan",), ("explain", "pod/a"), ("preview", str(EXAMPLES / "pods")),
])  # fmt: skip
def test_unreachable_api_server_is_an_error_that_says_what_to_do(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    kubeconfig = write_kubeconfig(tmp_path, f"https://127.0.0.1:{free_port()}")
    done = podsettle(*arguments, "--kubeconfig", kubeconfig)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("podsettle: the API server does not answer: GET /")
    check = f"kubectl --kubeconfig={kubeconfig} version"
    assert done.stderr.endswith(f"refused; to check the kubeconfig: {check}\n")


def test_list_of_commands_is_complete_and_not_cut() -> None:
    shown = podsettle("--help").stdout.partition("Commands:\n")[2]
    assert "..." not in shown
    listed = [line.split()[0] for line in shown.splitlines() if line[2:3].strip()]
    context = click.Context(main)
    assert listed == main.list_commands(context)
    assert all(main.get_command(context, name) is not None for name in listed)


def test_list_of_commands_imports_no_command() -> None:
    code = (
        "import sys\nfrom webhook.cli import main\n"
        "try:\n main(['--help'])\nexcept SystemExit:\n"
        " print([n for n in sys.modules if n.startswith('webhook.cli.')])"
    )
    done = run(sys.executable, "-c", code, check=True)
    assert done.stdout.splitlines()[-1] == "['webhook.cli.server_extra']"


def test_package_that_cannot_be_imported_is_no_internal_error() -> None:
    code = (
        "import sys\nsys.modules['yaml._yaml'] = None\n"  # As pip builds it without libyaml.
        "from webhook.cli import main\nmain(['scan', '-o', 'json'])"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 2
    assert done.stderr.startswith("podsettle: scan: cannot use a package that is installed here: ")
    assert "libyaml" in done.stderr


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": ""}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_environment_switches_colours_on_and_off(variables: dict[str, str], coloured: bool) -> None:
    env = {name: value for name, value in os.environ.items() if not name.endswith("_COLOR")}
    pod = EXAMPLES / "pods" / "tekton-taskrun.yaml"
    done = podsettle("preview", "--manifests", EXAMPLES, pod, env=env | variables)
    assert ("\x1b[" in done.stdout) == coloured


def test_no_color_switches_colours_off_in_a_terminal() -> None:
    pod = EXAMPLES / "pods" / "tekton-taskrun.yaml"
    outputs = {}
    for value in ("", "1"):
        env = {**os.environ, "NO_COLOR": value, "FORCE_COLOR": "", "TERM": "xterm"}
        outputs[value] = output_in_a_terminal(
            [PODSETTLE, "preview", "--manifests", str(EXAMPLES), str(pod)], env
        )
    assert b"\x1b[" in outputs[""]
    assert b"\x1b[" not in outputs["1"]


def output_in_a_terminal(command: list[str], env: dict[str, str]) -> bytes:
    """Run a command whose standard output is a terminal."""
    ours, theirs = os.openpty()
    with subprocess.Popen(command, stdout=theirs, env=env) as process:
        os.close(theirs)
        output = b""
        try:
            while chunk := os.read(ours, 65536):
                output += chunk
        except OSError:  # Linux reports the end of a terminal as an error.
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0
    return output


def complete_for_kubectl(*words: str) -> list[str]:
    program = Path(PODSETTLE).with_name("kubectl_complete-settle")
    done = run(program, *words, check=True)
    return done.stdout.splitlines()


def test_kubectl_gets_completions_with_descriptions_and_a_directive() -> None:
    assert complete_for_kubectl("pre") == [
        "preview\tShow how podsettle would change the pods of workloads.",
        ":4",
    ]
    assert complete_for_kubectl("preview", "-o", "js") == ["json", ":4"]
    assert complete_for_kubectl("preview", "exam") == [":0"]
    assert complete_for_kubectl("certs", "--certs-dir", "") == [":16"]
    assert complete_for_kubectl()[-1] == ":4"


@pytest.mark.parametrize(
    ("line", "completion"),
    [
        ("check --kubec", "--kubeconfig"),
        ("-n ci scan --kubec", "--kubeconfig"),
        ("no", "node-config"),
        ("help sc", "scan"),
        ("scan --context pro", "prod"),
        ("explain nocom", "NoCommand"),
        ("explain fsgroupc", "fsGroupChangePolicy"),
    ],
)
def test_shell_completes_what_needs_no_cluster(line: str, completion: str, tmp_path: Path) -> None:
    contexts: list[dict[str, object]] = [{"name": name, "context": {}} for name in ("prod", "test")]
    (tmp_path / "config").write_text(json.dumps({"contexts": contexts}))
    env = {
        **os.environ,
        "KUBECONFIG": str(tmp_path / "config"),
        "_PODSETTLE_COMPLETE": "bash_complete",
        "COMP_WORDS": f"podsettle {line}",
        "COMP_CWORD": str(len(line.split())),
    }
    assert podsettle(env=env).stdout == f"plain,{completion}\n"


def test_v_is_not_the_log_of_requests() -> None:
    """A command whose report has no more to show has no -v."""
    done = podsettle("version", "-v")
    assert (done.returncode, "No such option" in done.stderr) == (2, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_click(shell: str) -> None:
    env = {**os.environ, "_PODSETTLE_COMPLETE": f"{shell}_source"}
    done = podsettle("completion", shell)
    assert done.returncode == 0
    assert done.stdout.strip() == podsettle(env=env).stdout.strip()


def test_help_of_a_command_is_that_of_its_option() -> None:
    assert podsettle("help", "scan").stdout == podsettle("scan", "--help").stdout
    assert podsettle("help", "node-config", "crio").stdout == podsettle(
        "node-config", "crio", "--help"
    ).stdout  # fmt: skip
    assert podsettle("help").stdout == podsettle("--help").stdout


@pytest.mark.parametrize("words", [["scam"], ["help", "scam"]])
def test_unknown_command_is_an_error_that_names_a_similar_one(words: list[str]) -> None:
    unknown = podsettle(*words)
    assert unknown.returncode == 2
    assert "No such command 'scam'. Did you mean 'scan'?" in unknown.stderr


def test_version_of_the_client_needs_no_cluster() -> None:
    assert podsettle("version", "--client").stdout == f"client: {__version__}\n"


def test_version_says_why_the_server_is_not_known(tmp_path: Path) -> None:
    env = {**os.environ, "KUBECONFIG": str(tmp_path / "none")}
    done = podsettle("version", "-o", "json", env=env)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["client"], answer["server"]["image"]) == (__version__, None)
    assert f"{tmp_path / 'none'} (KUBECONFIG) does not exist" in answer["server"]["why"]
    chosen = podsettle("version", "--kubeconfig", tmp_path / "none")
    assert (chosen.returncode, chosen.stdout) == (2, "")
