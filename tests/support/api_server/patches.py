"""Merge patches (RFC 7396) and JSON patches (RFC 6902)."""

import copy

from tests.support.api_server.answers import Json, Object, Refused, bad_request


def merge_patched(value: Json, patch: Json) -> Json:
    """The value after a merge patch."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for name, inner in patch.items():
        if inner is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patched(merged.get(name), inner)
    return merged


def json_patched(value: Object, steps: Json) -> Json:
    """The value after a JSON patch.

    Raises:
        Refused: 422 where a test fails or a path is not there; 400 where it is no patch.
    """
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise bad_request("error decoding patch: a list of operations is expected")
    holder = {"": copy.deepcopy(value)}
    for step in steps:
        try:
            _take(holder, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            message = "the server rejected our request due to an error in our request"
            raise Refused(422, "Invalid", message, details={}) from error
    return holder[""]


def _take(holder: Object, step: Object) -> None:
    """One operation. The value stands in `holder`, so that all of it can be replaced."""
    operation, path = step["op"], _words(step["path"])
    if operation == "test":
        if _at(holder, path) != step["value"]:
            raise ValueError(step["path"])
    elif operation == "add":
        _add(holder, path, step["value"])
    elif operation == "replace":
        _at(holder, path)
        _remove(holder, path)
        _add(holder, path, step["value"])
    elif operation == "remove":
        _remove(holder, path)
    elif operation in ("move", "copy"):
        start = _words(step["from"])
        moved = copy.deepcopy(_at(holder, start))
        if operation == "move":
            _remove(holder, start)
        _add(holder, path, moved)
    else:
        raise ValueError(operation)


def _words(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(pointer)
    return [word.replace("~1", "/").replace("~0", "~") for word in pointer.split("/")]


def _at(holder: Json, words: list[str]) -> Json:
    for word in words:
        holder = holder[int(word) if isinstance(holder, list) else word]
    return holder


def _add(holder: Json, words: list[str], value: Json) -> None:
    parent, last = _at(holder, words[:-1]), words[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else int(last)
        if not 0 <= index <= len(parent):
            raise IndexError(last)
        parent.insert(index, value)
    else:
        parent[last] = value


def _remove(holder: Json, words: list[str]) -> None:
    parent, last = _at(holder, words[:-1]), words[-1]
    del parent[int(last) if isinstance(parent, list) else last]
