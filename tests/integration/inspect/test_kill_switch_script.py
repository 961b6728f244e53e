"""The printed kill switch as a script, with programs that only record their calls."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.helm import named, objects
from webhook.inspect.doctor.deleted_configuration import Switch
from webhook.inspect.doctor.kill_switch import instructions
from webhook.inspect.installation import installation_of


def test_printed_lines_as_a_whole_are_a_script_that_leaves_podsettle_off(tmp_path: Path) -> None:
    (configuration,) = (
        each for each in objects() if each["kind"] == "MutatingWebhookConfiguration"
    )
    deployment = named("Deployment", "podsettle")
    release = {"annotations": {"meta.helm.sh/release-name": "settle"}}
    deployment = {**deployment, "metadata": {**deployment["metadata"], **release}}
    switch = Switch(configuration, installation_of(deployment))
    calls = tmp_path / "calls"
    for name in ("kubectl", "helm", "sleep"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$1" >> {calls}\n')
        program.chmod(0o755)
    script = "\n".join(instructions(switch))
    assert "#   helm upgrade settle " in script
    subprocess.run(
        ["sh", "-e"],
        input=script,
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.defpath}"},
        text=True,
        check=True,
    )
    done = ["kubectl get", "kubectl delete", "sleep 10", "kubectl get"]
    assert calls.read_text().splitlines() == done
    assert (tmp_path / "podsettle-webhook.yaml").read_text() == switch.record
