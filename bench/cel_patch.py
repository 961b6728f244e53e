"""podsettle's patch as a CEL expression, for the native policies of the part `end-to-end`."""

from __future__ import annotations

import json

from bench.errors import BenchError
from bench.reviews import Json


def cel_patch(pod: Json, settled: Json) -> str:
    """Return the CEL expression that changes pods like `pod` in the same way as podsettle.

    `settled` is `pod` after podsettle has changed it. Raises BenchError if the wrapped containers
    have different wrappers, or if the summary does not begin with their names.
    """
    wrapper = None
    for before, after in zip(
        pod["spec"]["initContainers"], settled["spec"]["initContainers"], strict=True
    ):
        prefix = after["command"][: -len(before["command"])]
        if not prefix or wrapper not in (None, prefix):
            raise BenchError(f"unexpected prefix of the command of {before['name']}: {prefix}")
        wrapper = prefix
    annotations = settled["metadata"]["annotations"]
    applied = annotations["podsettle.dev/applied"]
    names = " and ".join(container["name"] for container in pod["spec"]["initContainers"])
    summary = annotations["podsettle.dev/summary"]
    if not summary.startswith(names):
        raise BenchError(f"unexpected summary: {summary}")
    mount = settled["spec"]["initContainers"][0]["volumeMounts"][-1]
    volume = settled["spec"]["volumes"][-1]
    return f"""
    (has(object.metadata.annotations) ? [] : [
      JSONPatch{{op: "add", path: "/metadata/annotations", value: {{}}}}
    ]) + [
      JSONPatch{{op: "add", path: "/metadata/annotations/podsettle.dev~1applied",
        value: {json.dumps(applied)}}},
      JSONPatch{{op: "add", path: "/metadata/annotations/podsettle.dev~1settled",
        value: string(size(object.spec.containers))
          + "/" + string(size(object.spec.initContainers))
          + "/" + string(size(object.spec.volumes) + 1)
          + "/" + string(size(object.metadata.labels))}},
      JSONPatch{{op: "add", path: "/metadata/annotations/podsettle.dev~1summary",
        value: object.spec.initContainers.filter(c, has(c.command)).map(c, c.name).join(" and ")
          + {json.dumps(summary.removeprefix(names))}}},
      JSONPatch{{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{{
        name: {json.dumps(volume["name"])},
        image: Object.spec.volumes.image{{
          reference: {json.dumps(volume["image"]["reference"])},
          pullPolicy: {json.dumps(volume["image"]["pullPolicy"])}}}}}}}
    ] + lists.range(size(object.spec.initContainers))
      .filter(i, has(object.spec.initContainers[i].command))
      .map(i, JSONPatch{{op: "replace",
        path: "/spec/initContainers/" + string(i) + "/command",
        value: {json.dumps(wrapper)} + object.spec.initContainers[i].command}})
    + lists.range(size(object.spec.initContainers))
      .filter(i, has(object.spec.initContainers[i].command))
      .map(i, JSONPatch{{op: "add",
        path: "/spec/initContainers/" + string(i) + "/volumeMounts/-",
        value: Object.spec.initContainers.volumeMounts{{
          name: {json.dumps(mount["name"])},
          mountPath: {json.dumps(mount["mountPath"])},
          readOnly: true}}}})
    """
