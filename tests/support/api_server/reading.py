"""Lists: in pages, of now or of an earlier version."""

import base64
import binascii
import json
import re
from collections.abc import Mapping

from tests.support.api_server import events
from tests.support.api_server.answers import Object, Refused, bad_request
from tests.support.api_server.kinds import CORE_EVENT, Kind
from tests.support.api_server.selectors import selector_of
from tests.support.api_server.store import Key, Store

_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_TOO_OLD_TO_GO_ON = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"
    " the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
    " Continuing with the provided token results in an inconsistent list - objects that were created, modified, or"
    " deleted between the time the first chunk was returned and now may show up in the list."
)


def shown(kind: Kind, item: Object) -> Object:
    """A stored object in the version that it is asked for in."""
    return events.as_core(item) if kind == CORE_EVENT else {**item, "apiVersion": kind.api_version}


def list_of(store: Store, kind: Kind, namespace: str, query: Mapping[str, str]) -> Object:
    """The answer to a list.

    Raises:
        Refused: 400, 410 or 504, as the versions and the token that it names are.
    """
    _, asked = numbers_of(query)
    selects = selector_of(kind.resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    version, start = _version_of(store, query), ""
    if query.get("continue"):
        if query.get("resourceVersion", "") not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        version, start = _from_token(store, query["continue"])
    there = [
        (key, item)
        for key, item in store.at(version, kind.resource, namespace)
        if selects(item) and _place(key) > start
    ]
    # the watch cache, which answers where any version will do, knows no pages
    limit = asked if asked > 0 and query.get("resourceVersion") != "0" else len(there)
    metadata: Object = {"resourceVersion": str(version)}
    if kind.is_custom():
        metadata["continue"] = ""
    if len(there) > limit:
        metadata["continue"] = _token(version, _place(there[limit - 1][0]))
        if not (query.get("labelSelector") or query.get("fieldSelector")):
            metadata["remainingItemCount"] = len(there) - limit
    items = [shown(kind, item) for _, item in there[:limit]]
    if not kind.is_custom():
        # the items of a list of built-in kinds do not say what they are
        items = [{name: value for name, value in item.items() if name not in ("kind", "apiVersion")} for item in items]
    name = kind.list_name or f"{kind.name}List"
    return {"kind": name, "apiVersion": kind.api_version, "metadata": metadata, "items": items}


def numbers_of(query: Mapping[str, str]) -> tuple[int, int]:
    """The timeoutSeconds and the limit of a list or a watch; 0 where the query has none.

    Raises:
        Refused: 400 where one of them is not a whole number, such as 240.0.
    """
    texts = (query.get("timeoutSeconds", "0"), query.get("limit", "0"))
    for text in texts:
        if not _WHOLE.fullmatch(text):
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    seconds, limit = map(int, texts)
    return seconds, limit


def version_asked(store: Store, query: Mapping[str, str]) -> int:
    """The resourceVersion that a request names; 0 where it names none.

    Raises:
        Refused: 400 where it is none; 504 where it lies in the future.
    """
    text = query.get("resourceVersion") or "0"
    if not text.isascii() or not text.isdigit():
        said = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f"invalid resource version: {said}")
    if int(text) > store.version:
        said = f"Timeout: Too large resource version: {text}, current: {store.version}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        details = {"causes": [cause], "retryAfterSeconds": 1}
        raise Refused(504, "Timeout", said, details=details, headers={"Retry-After": "1"})
    return int(text)


def _version_of(store: Store, query: Mapping[str, str]) -> int:
    """The version to list: now, unless exactly another is asked for."""
    version = version_asked(store, query)
    if query.get("resourceVersionMatch") != "Exact":
        return store.version
    if version < store.oldest:
        raise Refused(410, "Expired", "The resourceVersion for the provided list is too old.")
    return version


def _place(key: Key) -> str:
    return f"{key.namespace}/{key.name}"


def _token(version: int, start: str) -> str:
    told = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}).encode()
    return base64.urlsafe_b64encode(told).decode().rstrip("=")


def _from_token(store: Store, token: str) -> tuple[int, str]:
    try:
        told = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, start = int(told["rv"]), str(told["start"])
    except (ValueError, TypeError, KeyError, binascii.Error) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    if version < 0:
        return store.version, start
    if version < store.oldest:
        raise Refused(410, "Expired", _TOO_OLD_TO_GO_ON, metadata={"continue": _token(-1, start)})
    return version, start
