"""The option for the page that explains podsettle to the developer of a pod."""

from __future__ import annotations

import click

from webhook.core.docs_url import docs_url_problem


def check_docs_url(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Return a valid URL of a page, or None for an empty text. Raise click.BadParameter."""
    if not value:
        return None
    if problem := docs_url_problem(value):
        raise click.BadParameter(problem, param=parameter)
    return value
