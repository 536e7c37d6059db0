"""Sets of fields: which of them an object has, which of them two objects differ in, and how FieldsV1 writes them.

A path is a tuple of FieldsV1's own words: `("f:spec", "f:conditions", 'k:{"type":"Ready"}', "f:status")`. The rules are
those of structured-merge-diff, the library of server-side apply.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.support.api_server.answers import Json, Object
from tests.support.api_server.shapes import LEAF, MAP, Shape, element_of

Path = tuple[str, ...]
Fields = frozenset[Path]
# Where there is no value, null included: to the fields' owners a null is one.
_NOTHING: Json = ()
# What nobody owns: the API server itself writes it.
UNOWNED: Fields = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields",
            "name", "namespace", "resourceVersion", "selfLink", "uid",
        )
    }
)  # fmt: skip


def children(value: Json, shape: Shape, how: str) -> Iterator[tuple[str, Json, Shape]]:
    """The parts of a map or a list with keys: the word of each, its value and its shape."""
    if how == MAP:
        for name, inner in value.items():
            yield f"f:{name}", inner, shape.child(name)
    else:
        for item in value:
            yield element_of(item, shape, how), item, shape.item()


def fields_of(value: Json, shape: Shape, path: Path = ()) -> Iterator[Path]:
    """The fields that an applied object names, which its manager owns."""
    how = shape.how(value)
    if how == LEAF or not value:
        yield path
        return
    for word, inner, inner_shape in children(value, shape, how):
        if how != MAP or not shape.declares(word[2:]):
            yield (*path, word)
        yield from fields_of(inner, inner_shape, (*path, word))


@dataclass(slots=True)
class Difference:
    """The fields in which an object differs from an earlier one."""

    added: set[Path] = field(default_factory=set)
    modified: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)

    def is_empty(self) -> bool:
        """Whether the objects are the same."""
        return not (self.added or self.modified or self.removed)


def difference(before: Json, after: Json, shape: Shape) -> Difference:
    """The fields in which `after` differs from `before`, less those that nobody owns."""
    found = Difference()
    _compare(before, after, shape, (), found)
    found.added -= UNOWNED
    found.modified -= UNOWNED
    found.removed -= UNOWNED
    return found


def _compare(before: Json, after: Json, shape: Shape, path: Path, found: Difference) -> None:
    how = shape.how(after or before)
    if how != LEAF and (before or after) and _alike(before, after):
        old = {word: (inner, inner_shape) for word, inner, inner_shape in children(before or {}, shape, how)}
        new = {word: (inner, inner_shape) for word, inner, inner_shape in children(after or {}, shape, how)}
        for word in old.keys() | new.keys():
            was, inner_shape = old.get(word) or (_NOTHING, new[word][1])
            _compare(was, new.get(word, (_NOTHING,))[0], inner_shape, (*path, word), found)
    elif before is not _NOTHING and after is not _NOTHING and before != after:
        found.modified.add(path)
    if before is _NOTHING:
        found.added.add(path)
    elif after is _NOTHING:
        found.removed.add(path)


def _alike(before: Json, after: Json) -> bool:
    """Whether both are maps or both lists, as far as there is anything of them."""
    return not before or not after or type(before) is type(after)


def with_ancestors(paths: Iterable[Path], shape: Shape) -> set[Path]:
    """The paths, and of what they stand in the parts that have a name in the schema."""
    told = set(paths)
    for path in tuple(told):
        _add_ancestors(path, 0, shape, told)
    return told


def _add_ancestors(path: Path, depth: int, shape: Shape, told: set[Path]) -> None:
    if depth + 1 >= len(path):
        return
    word = path[depth]
    if word.startswith("f:"):
        if shape.declares(word[2:]):
            told.add(path[: depth + 1])
        _add_ancestors(path, depth + 1, shape.child(word[2:]), told)
    else:
        _add_ancestors(path, depth + 1, shape.item(), told)


def without(value: Json, paths: Iterable[Path], shape: Shape) -> Json:
    """The value less some of its fields; None where nothing is left of it."""
    whole: set[str] = set()
    inside: dict[str, list[Path]] = {}
    for path in paths:
        if len(path) == 1:
            whole.add(path[0])
        elif path:
            inside.setdefault(path[0], []).append(path[1:])
    how = shape.how(value)
    if how == LEAF or not value or not (whole or inside):
        return value
    kept = [
        (word, without(inner, inside.get(word, ()), inner_shape))
        for word, inner, inner_shape in children(value, shape, how)
        if word not in whole
    ]
    if how == MAP:
        return {word[2:]: inner for word, inner in kept if inner is not None or value[word[2:]] is None} or None
    return [inner for _, inner in kept if inner is not None] or None


def to_fields_v1(paths: Iterable[Path]) -> Object:
    """The paths as FieldsV1: nested objects, with "." where what has parts is a field itself."""
    root: Object = {}
    for path in sorted(paths):
        node = root
        for word in path:
            node = node.setdefault(word, {})
        node["."] = {}
    return {word: _leafless(inner) for word, inner in root.items()}


def _leafless(node: Object) -> Object:
    """A leaf is an empty object, not one that holds "." alone."""
    return {} if node.keys() == {"."} else {word: _leafless(inner) for word, inner in node.items()}


def from_fields_v1(node: Object, path: Path = ()) -> Iterator[Path]:
    """The paths that FieldsV1 names."""
    if path and (not node or "." in node):
        yield path
    for word, inner in node.items():
        if word != ".":
            yield from from_fields_v1(inner if isinstance(inner, dict) else {}, (*path, word))


def in_words(path: Path) -> str:
    """A path as conflicts name it: `.spec.conditions[type="Ready"].status`."""
    told = []
    for word in path:
        kind, _, rest = word.partition(":")
        if kind == "k":
            pairs = ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items())
            told.append(f"[{pairs}]")
        else:
            told.append(f".{rest}" if kind == "f" else f"[={rest}]")
    return "".join(told)
