"""The command `podsettle`, also installed as `kubectl-settle`."""

from __future__ import annotations

import os
import signal

if os.getpid() == 1:
    # Linux discards a signal for the first process of a container if the process has no handler.
    # The imports below take about a second, and only then the server sets its own handler.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))

from webhook.process_memory import imports_excluded_from_gc

with imports_excluded_from_gc():
    import click

    from webhook import __version__
    from webhook.cli.certs import certs
    from webhook.cli.check import check
    from webhook.cli.logs import logs
    from webhook.cli.node_config import node_config
    from webhook.cli.preview import preview
    from webhook.cli.serve import serve
    from webhook.cli.wait import wait


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="podsettle")
def main() -> None:
    """Change new pods to avoid known races in container runtimes and the kubelet.

    Exit codes: 0 success; 1 a problem or a change was found; 2 an error. `wait` exits with the exit
    code of the container. The help of `wait` and `logs` lists their codes.
    """


for _command in (serve, preview, check, wait, logs, node_config, certs):
    main.add_command(_command)
