"""Random changes of pods: values anywhere, and more often in the fields that podsettle reads."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from tests.support.factories import Json, in_shell
from tests.support.paths import ROOT
from webhook.core.constants import ANNOTATION_SKIP, HELPER, HELPER_PATH, OWN_CONTAINERS
from webhook.core.pod import Pod
from webhook.core.remedies import REMEDIES

Place: TypeAlias = tuple[str | int, ...]

_WORDS = (
    *("", "a", "p", "true", "false", "Always", "Never", "OnFailure", "windows", "linux", "spc_t"),
    *("s0:c1,c2", "Recursive", "MountOption", "In", "NotIn", "Exists", "Gt", "Equal", "255", "é/~"),
    *("sh", "/bin/bash", "/linger", HELPER_PATH, "/podsettle/", "/data", "sidecar-a", "istio-init"),
    *("registry.example/app:latest", "registry.example/app:2", "runc", "5m", "1Gi", "\U0001f600"),
    *("system-node-critical", "DaemonSet", "Job", ANNOTATION_SKIP, *REMEDIES, *OWN_CONTAINERS),
)
_RAW_VALUES: tuple[Any, ...] = (
    *([], ["a"], ["a", "b"], {}, "a", [1], [{"name": HELPER, "mountPath": "/podsettle"}]),
    [HELPER_PATH, "--open-files", "9", "--", "x"],
    *([{"name": "data", "mountPath": "/podsettle/x"}], [{"name": "t", "mountPath": "/tmp"}]),
    *([{"key": "", "operator": "Exists"}], [{"devicePath": "/podsettle"}], [{"key": "a"}]),
    *({"limits": {"cpu": "5m"}}, {"limits": {"memory": "5Mi"}, "requests": {"cpu": "1"}}),
)
"""Values of the fields whose types are not declared, because podsettle decodes them only if a
remedy reads them."""
_COMMANDS = (
    ["/bin/sh", "-c", "x"],
    ["/entrypoint", "$(A)"],
    [HELPER_PATH, "--", "x"],
    in_shell(["sh", "-c", "x"], sleep_ms=1, min_lifetime_ms=2),
    ["/vault/vault-env"],
)


def _compared_texts() -> tuple[str, ...]:
    """Return the texts with which the code of the remedies compares values."""
    found: set[str] = set()
    for path in (ROOT / "webhook/core/remedies").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Compare() | ast.Call(func=ast.Attribute(attr="get" | "startswith")):
                    constants = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
                    found.update(each.value for each in constants if isinstance(each.value, str))
    return tuple(sorted(found))


_COMPARED_TEXTS = _compared_texts()
_FOREIGN = ("x-new", "env", "hostname", "workingDir", "terminationGracePeriodSeconds", "subPath")


class Mutator:
    """A source of mutants. The same seed gives the same mutants."""

    def __init__(self, pods: Iterable[Json], chance: random.Random) -> None:
        self._chance = chance
        # The values that real pods have under a key, for the same key of other pods.
        self._values: dict[str, list[Any]] = {}
        for pod in pods:
            for key, value in (item for _, found in _objects(pod) for item in found.items()):
                known = self._values.setdefault(key, [])
                if len(known) < 50 and value not in known:
                    known.append(value)
        self._values.setdefault("command", []).extend(_COMMANDS)
        # The fields that podsettle reads in the objects under a key, with their types.
        self._read: dict[str, dict[str, msgspec.inspect.Type]] = {}
        self._collect_fields("", msgspec.inspect.type_info(Pod))

    def mutant(self, pod: Json, *, only_foreign: bool = False) -> Json:
        """Return a copy with one to four changes, or with changes of fields that nothing reads."""
        made: Json = _copy(pod)
        for _ in range(self._chance.choice((1, 1, 2, 4))):
            if only_foreign:
                self._add_foreign_field(made)
            elif self._chance.random() < 0.6:
                self._change_field_that_is_read(made)
            else:
                self._change_anything(made)
        return made

    def _collect_fields(self, key: str, type_: msgspec.inspect.Type) -> None:
        match type_:
            case msgspec.inspect.StructType(fields=fields):
                known = self._read.setdefault(key, {})
                for field in fields:
                    if field.encode_name not in known:
                        known[field.encode_name] = field.type
                        self._collect_fields(field.encode_name, field.type)
            case msgspec.inspect.UnionType(types=types):
                for inner in types:
                    self._collect_fields(key, inner)
            case (
                msgspec.inspect.ListType(item_type=inner)
                | msgspec.inspect.VarTupleType(item_type=inner)
            ):
                self._collect_fields(key, inner)

    def _change_field_that_is_read(self, pod: Json) -> None:
        objects = [
            (key, found) for key, found in _objects(pod) if self._read.get(key) and found is not pod
        ]
        if not objects:
            return
        key, found = self._chance.choice(objects)
        name = self._chance.choice([*self._read[key]])
        dice = self._chance.random()
        if dice < 0.15:
            found.pop(name, None)
        elif dice < 0.25:
            found[name] = None
        elif dice < 0.6 and self._values.get(name):
            found[name] = self._known_value(name)
        else:
            found[name] = self._value(name, self._read[key][name])

    def _change_anything(self, pod: Json) -> None:
        places = _places(pod)
        *path, last = self._chance.choice(places)
        holder = _at(pod, path)
        value = holder[last]
        match self._chance.randrange(7):
            case 0:
                del holder[last]
            case 1 if self._chance.random() < 0.3:
                holder[last] = None
            case 2:
                # Values of other types would make most mutants malformed.
                some = self._chance.choices(places, k=8)
                other = next((p for p in some if type(_at(pod, p)) is type(value)), some[0])
                swapped = _copy(_at(pod, other))
                _set(pod, other, _copy(value))
                _set(pod, (*path, last), swapped)
            case 3 if isinstance(holder, list):
                holder.insert(self._chance.randrange(len(holder) + 1), _copy(value))
            case 4 if isinstance(holder, list):
                self._chance.shuffle(holder)
            case 5:
                self._add_foreign_field(pod)
            case _:
                holder[last] = self._changed(last, value)

    def _add_foreign_field(self, pod: Json) -> None:
        """Set a field that podsettle does not read, a label, an annotation, an image or a name."""
        chance = self._chance
        objects = _objects(pod)
        metadata = pod.get("metadata")
        containers = [found for key, found in objects if key in ("containers", "initContainers")]
        dice = chance.randrange(4)
        if dice == 0 and isinstance(metadata, dict):
            name = chance.choice(("name", "generateName", "uid", "resourceVersion"))
            metadata[name] = self._word()
        elif dice == 1 and isinstance(metadata, dict):
            texts = metadata.get(chance.choice(("labels", "annotations")))
            if isinstance(texts, dict) and texts:
                texts[chance.choice([*texts, self._word()])] = self._word()
        elif dice == 2 and containers:
            key = chance.choice(("image", "image", "args", "env"))
            chance.choice(containers)[key] = (
                self._known_value("args") if key != "image" else self._word()
            )
        else:
            _, found = chance.choice(objects)
            found[chance.choice(_FOREIGN)] = chance.choice((self._word(), 1, [], {}))

    def _changed(self, key: str | int, value: Any) -> Any:
        match value:
            case bool():
                return not value
            case int() | float():
                return self._chance.choice((0, -1, value + 1, 2**53, str(value)))
            case _ if isinstance(key, str) and self._values.get(key):
                return self._known_value(key)
            case str():
                return self._chance.choice((value + "x", value[:-1], self._word()))
        return self._chance.choice((None, [], {}, self._word(), 1))

    def _known_value(self, key: str) -> Any:
        return _copy(self._chance.choice(self._values[key]))

    def _word(self) -> str:
        return self._chance.choice(self._chance.choice((_WORDS, _COMPARED_TEXTS)))

    def _value(self, key: str, type_: msgspec.inspect.Type) -> Any:
        """Return a value of a declared type."""
        chance = self._chance
        match type_:
            case msgspec.inspect.UnionType(types=types):
                return self._value(key, types[0])
            case msgspec.inspect.BoolType():
                return chance.random() < 0.5
            case msgspec.inspect.IntType():
                return chance.choice((0, 1, 255, 1000, -1))
            case msgspec.inspect.StrType():
                return self._word()
            case (
                msgspec.inspect.ListType(item_type=inner)
                | msgspec.inspect.VarTupleType(item_type=inner)
            ):
                return [self._value(key, inner) for _ in range(chance.randrange(3))]
            case msgspec.inspect.DictType():
                return {self._word(): self._word() for _ in range(chance.randrange(3))}
            case msgspec.inspect.StructType(fields=fields):
                return {
                    field.encode_name: self._value(field.encode_name, field.type)
                    for field in fields
                    if chance.random() < max(0.4, 2 / len(fields) if fields else 0)
                }
        return _copy(chance.choice(_RAW_VALUES))


def _copy(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _at(pod: Json, place: Iterable[str | int]) -> Any:
    found: Any = pod
    for step in place:
        found = found[step]
    return found


def _set(pod: Json, place: Place, value: Any) -> None:
    """Set a value, unless an earlier change has removed the object that holds it."""
    *path, last = place
    try:
        _at(pod, path)[last] = value
    except (LookupError, TypeError):
        return


def _places(pod: Json) -> list[Place]:
    """Return the place of every value except the whole."""
    found: list[Place] = []

    def collect(value: Any, path: Place) -> None:
        steps: Iterable[tuple[str | int, Any]] = ()
        if isinstance(value, dict):
            steps = value.items()
        elif isinstance(value, list):
            steps = enumerate(value)
        for step, inner in steps:
            place = (*path, step)
            found.append(place)
            collect(inner, place)

    collect(pod, ())
    return found


def _objects(pod: Json) -> list[tuple[str, Json]]:
    """Return each object with its key. Objects in a list have the key of the list."""
    found: list[tuple[str, Json]] = []

    def collect(value: Any, key: str) -> None:
        if isinstance(value, dict):
            found.append((key, value))
            for name, inner in value.items():
                collect(inner, name)
        elif isinstance(value, list):
            for inner in value:
                collect(inner, key)

    collect(pod, "")
    return found
