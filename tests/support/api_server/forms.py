"""The forms in which an answer may be asked for: as it is, its metadata alone, or a table for people."""

import re
from collections.abc import Callable

from tests.support.api_server.answers import Json, Object
from tests.support.api_server.kinds import Kind

_METADATA, _TABLE = "PartialObjectMetadata", "Table"
_META = "meta.k8s.io/v1"
_FILTER = re.compile(r"(\w+)\[\?\(@\.(\w+)==\"([^\"]*)\"\)\]")
_NAME = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a"
    " client to request the generation of an appropriate name automatically. Name is primarily intended for creation"
    " idempotence and configuration definition. Cannot be updated. More info:"
    " https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)


def in_form(answer: Object, kind: Kind, accept: str) -> Object:
    """The answer to a get or a list, in the form that is asked for."""
    if f"as={_TABLE};" in accept and kind.is_custom():
        return _table(answer, kind)
    if f"as={_METADATA}" not in accept:
        return answer
    if "items" not in answer:
        return metadata_of(answer)
    items = [metadata_of(item) for item in answer["items"]]
    return {"kind": f"{_METADATA}List", "apiVersion": _META, "metadata": answer["metadata"], "items": items}


def event_form(accept: str) -> Callable[[Object], Object]:
    """What is shown of an object in an event of a watch."""
    return metadata_of if f"as={_METADATA}" in accept else lambda item: item


def metadata_of(item: Object) -> Object:
    """An object without all but its metadata."""
    return {"kind": _METADATA, "apiVersion": _META, "metadata": item["metadata"]}


def _table(answer: Object, kind: Kind) -> Object:
    """The printer columns of a custom resource."""
    columns: list[Object] = [{"name": "Name", "type": "string", "format": "name", "description": _NAME, "priority": 0}]
    columns += [
        {
            "name": column["name"],
            "type": column["type"],
            "format": column.get("format", ""),
            "description": column.get("description")
            or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}",
            "priority": column.get("priority", 0),
        }
        for column in kind.columns
    ]
    rows = [
        {
            "cells": [item["metadata"]["name"], *(_cell(item, column["jsonPath"]) for column in kind.columns)],
            "object": metadata_of(item),
        }
        for item in answer.get("items", [answer])
    ]
    version = {"resourceVersion": answer["metadata"]["resourceVersion"]}
    return {"kind": _TABLE, "apiVersion": _META, "metadata": version, "columnDefinitions": columns, "rows": rows}


def _cell(item: Json, path: str) -> Json:
    """What a JSONPath of names and `[?(@.name=="value")]` leads to; None where there is nothing."""
    for step in re.findall(r"\.((?:\w+)(?:\[\?\(.*?\)\])?)", path):
        found = _FILTER.fullmatch(step)
        item = item.get(found[1] if found else step) if isinstance(item, dict) else None
        if found and isinstance(item, list):
            item = next((inner for inner in item if inner.get(found[2]) == found[3]), None)
    return item
