"""The samples of a soak as an SVG chart."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from tests.soak.samples import Sample

_PANELS = (
    ("Resident memory, MiB", ("memory_mib",)),
    ("Descriptors, threads and tasks", ("descriptors", "threads", "tasks")),
    ("Time of a pod creation, ms", ("p50_ms", "p99_ms")),
)
_LABELS = {"memory_mib": "memory", "p50_ms": "p50", "p99_ms": "p99"}


def render_chart(samples: Sequence[Sample]) -> str:
    """Return an SVG document with a panel for each kind of figure, over the minutes of the run."""
    minutes = [sample.minute for sample in samples]
    # Texts stay texts. Without the salt, the names of clip paths are random.
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "podsettle", "font.size": 12}
    with mpl.rc_context(settings), io.StringIO() as document:
        figure = Figure((10, 9), facecolor="white", layout="constrained")
        for axes, (title, names) in zip(
            figure.subplots(len(_PANELS), 1, sharex=True), _PANELS, strict=True
        ):
            for name in names:
                values = [getattr(sample, name) for sample in samples]
                axes.plot(minutes, values, label=_LABELS.get(name, name))
            axes.set_title(title, loc="left")
            axes.set_ylim(bottom=0)
            if len(names) > 1:
                axes.legend(loc="lower right", ncols=len(names))
        axes.set_xlabel("minutes")
        metadata = {"Title": "Soak of podsettle", "Date": None, "Creator": None}
        figure.savefig(document, format="svg", metadata=metadata)
        return document.getvalue()
