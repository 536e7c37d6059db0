"""What follows /autoscale/ → a question. Pure."""

from http import HTTPStatus
from urllib.parse import unquote

from exporter.cluster.scaling import Question, Unanswerable

FORM = "/autoscale/<namespace>/<workload>/<metric>"
_PARTS = 3


def read_question(rest: str) -> Question:
    """The question of `<namespace>/<workload>/<metric>`, each part percent-encoded, as it was sent.

    The workload may be `<kind>:<name>`; neither kinds nor names have a colon in them.

    Raises:
        Unanswerable: 400, it is none.
    """
    parts = rest.split("/")
    try:
        decoded = [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError:
        raise _refused("a part of the path is not UTF-8") from None
    if len(parts) != _PARTS or not all(decoded):
        raise _refused(f"there are {len(parts) if rest else 0} parts, or one is empty")
    if any("/" in part or not part.isprintable() for part in decoded):
        raise _refused("no namespace, workload or metric has a slash or a control character in its name")
    namespace, workload, metric = decoded
    kind, colon, name = workload.rpartition(":")
    if colon and not (kind and name):
        raise _refused(f"{workload!r} is neither a name nor <kind>:<name>")
    return Question(namespace=namespace, workload=name, metric=metric, kind=kind)


def _refused(why: str) -> Unanswerable:
    return Unanswerable(HTTPStatus.BAD_REQUEST, f"{why}; ask for {FORM}, with <kind>:<name> where the kind matters")
