"""The report of a scan as one HTML file, which needs no network and runs no script.

The template is `report.html.j2`. A Content-Security-Policy allows only the style sheet in it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import timedelta

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from webhook.core.printable import count_of, printable
from webhook.inspect.scan import summary, unsettled
from webhook.inspect.scan.model import ScanReport

_MAX_FINDINGS = 50
"""The maximum number of workloads for each symptom, so that the file stays below 500 KiB."""
_CODE = re.compile("`([^`]+)`")


def render_html(report: ScanReport) -> str:
    """Return the report as an HTML document."""
    environment = Environment(
        loader=PackageLoader("webhook.inspect.scan", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        # A plain text can have characters that change the order of the page's text.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters |= {
        "code": _code,
        "lines": summary.finding_lines,
        "digest": lambda text: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode(),
        "places": summary.place_rows,
        "plural": count_of,
        "time": summary.time_or_dash,
        "times": summary.times,
    }
    found = summary.found_symptoms(report)
    timed = [symptom for symptom in found if symptom.id != unsettled.ID]
    begins = [part.begin for symptom in timed for part in symptom.timeline]
    last = max(begins) + timedelta(seconds=report.bin_seconds) if begins else None
    return environment.get_template("report.html.j2").render(
        report=report,
        summary=summary.summary_of(report),
        found=found,
        timed=timed,
        first=min(begins, default=None),
        last=last,
        defects=[each for each in report.defects if each.is_certain],
        tables=summary.report_tables(report),
        most=_MAX_FINDINGS,
    )


def _code(text: str) -> Markup:
    """Return a sentence with the texts between backquotes as code."""
    # `str`, because a Markup would escape what is put into it.
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(printable(text)))))  # noqa: S704
