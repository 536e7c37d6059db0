"""What the writer of an object, or of one of its subresources, may change of it."""

from tests.support.api_server.answers import Object
from tests.support.api_server.kinds import Kind

STATUS, SCALE = "status", "scale"
# What the API server alone writes.
ITS_OWN = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")


def for_subresource(kind: Kind, body: Object, subresource: str) -> Object:
    """The part of an applied object that counts where it is applied."""
    if subresource == STATUS:
        metadata = {name: body["metadata"][name] for name in ("name", "namespace", "resourceVersion", "uid")
                    if name in body["metadata"]}  # fmt: skip
        return {**{name: body[name] for name in ("apiVersion", "kind", STATUS) if name in body}, "metadata": metadata}
    return {name: value for name, value in body.items() if name != STATUS or not kind.has_status}


def merged_subresource(kind: Kind, live: Object, item: Object, subresource: str) -> Object:
    """The new object with what its writer may not change here put back."""
    if subresource == STATUS:
        metadata = dict(live["metadata"])
        if not kind.is_custom() and "annotations" in item["metadata"]:
            metadata["annotations"] = item["metadata"]["annotations"]
        return {**{name: value for name, value in live.items() if name != STATUS},
                **({STATUS: item[STATUS]} if STATUS in item else {}), "metadata": metadata}  # fmt: skip
    metadata = {name: value for name, value in item["metadata"].items() if name not in ITS_OWN}
    metadata |= {name: live["metadata"][name] for name in (*ITS_OWN, "resourceVersion", "name", "namespace")
                 if name in live["metadata"]}  # fmt: skip
    metadata = {name: value for name, value in metadata.items() if value not in (None, [], {}) or name == "generation"}
    kept = {**item, "metadata": metadata}
    if kind.has_status:
        kept.pop(STATUS, None)
        if STATUS in live:
            kept[STATUS] = live[STATUS]
    return kept


def is_other(kind: Kind, live: Object, item: Object) -> bool:
    """Whether what is wanted has changed: all but the metadata and, where it is a subresource, the status."""
    left_out = {"metadata", STATUS} if kind.has_status else {"metadata"}
    return {name: value for name, value in live.items() if name not in left_out} != {
        name: value for name, value in item.items() if name not in left_out
    }
