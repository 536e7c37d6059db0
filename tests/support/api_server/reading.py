"""Lists, in pages, and the forms in which objects are shown."""

from collections.abc import Mapping
from itertools import count

from tests.support.api_server.answers import Object, Refused
from tests.support.api_server.kinds import Kind, shown
from tests.support.api_server.selectors import selector_of
from tests.support.api_server.store import Store

_METADATA, _META = "PartialObjectMetadata", "meta.k8s.io/v1"
_TOO_OLD_TO_GO_ON = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"
    " the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
    " Continuing with the provided token results in an inconsistent list - objects that were created, modified, or"
    " deleted between the time the first chunk was returned and now may show up in the list."
)


class Lists:
    """Lists of the objects of a store. What is left of a list in pages is kept until the store forgets its version."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rests: dict[str, tuple[int, list[Object]]] = {}  # version and objects by token
        self._tokens = count(1)

    def answer(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> Object:
        """The answer to a list.

        Raises:
            Refused: 400, a selector or a token with a version; 410, the store has forgotten the list of a token.
        """
        version, items = self._all(kind, namespace, query)
        metadata: Object = {"resourceVersion": str(version)}
        if kind.schema is not None:
            metadata["continue"] = ""
        # the watch cache, which answers where any version will do, knows no pages
        limit = int(query.get("limit") or 0) if query.get("resourceVersion") != "0" else 0
        if 0 < limit < len(items):
            metadata["continue"] = f"page-{next(self._tokens)}"
            self._rests[metadata["continue"]] = version, items[limit:]
            items = items[:limit]
        if kind.schema is None:
            # the items of a list of built-in kinds do not say what they are
            items = [
                {name: value for name, value in item.items() if name not in ("kind", "apiVersion")} for item in items
            ]
        return {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata, "items": items}

    def _all(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> tuple[int, list[Object]]:
        """The objects of a list, or the rest of them, and the version that they are of."""
        token = query.get("continue")
        if not token:
            is_meant = selector_of(kind, query)
            stored = self._store.all(kind.resource, namespace)
            return self._store.version, [shown(kind, item) for _, item in stored if is_meant(item)]
        if query.get("resourceVersion", "") not in ("", "0"):
            raise Refused(400, "BadRequest", "specifying resource version is not allowed when using continue")
        version, items = self._rests.get(token, (-1, []))
        if version < self._store.oldest:
            raise Refused(410, "Expired", _TOO_OLD_TO_GO_ON)
        return version, items


def in_form(answer: Object, accept: str) -> Object:
    """An object, a list or an event's object, in the form that the request asks for: whole, or its metadata alone."""
    if f"as={_METADATA}" not in accept:
        return answer
    if "items" in answer:
        items = [in_form(item, accept) for item in answer["items"]]
        return {"kind": f"{_METADATA}List", "apiVersion": _META, "metadata": answer["metadata"], "items": items}
    return {"kind": _METADATA, "apiVersion": _META, "metadata": answer["metadata"]}
