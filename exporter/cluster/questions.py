"""What follows /autoscale/ → a question. Pure."""

import re
from http import HTTPStatus
from urllib.parse import unquote

from exporter.cluster.scaling import Question, Unanswerable

FORM = "/autoscale/<namespace>/<workload>/<metric>"
_PARTS = 3
# The forms that Kubernetes allows; a workload may have its name from a label's value (--workload.labels).
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_KIND = re.compile(r"[A-Za-z0-9]{1,63}")


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
    namespace, workload, metric = decoded
    try:
        return question_of(namespace, workload, metric)
    except ValueError as error:
        raise _refused(str(error)) from None


def question_of(namespace: str, workload: str, metric: str) -> Question:
    """The question for a workload, which is its name or `<kind>:<name>`. The metric is not judged here.

    Raises:
        ValueError: no namespace or no workload can have this name.
    """
    kind, colon, name = workload.rpartition(":")
    # what nobody can have made has no pods, and 0 would be the answer to a slip of the pen
    if not _NAMESPACE.fullmatch(namespace):
        raise ValueError(f"{namespace!r} is no namespace's name")
    if not _NAME.fullmatch(name) or (colon and not _KIND.fullmatch(kind)):
        raise ValueError(f"{workload!r} is neither a workload's name nor <kind>:<name>")
    return Question(namespace=namespace, workload=name, metric=metric, kind=kind)


def _refused(why: str) -> Unanswerable:
    return Unanswerable(HTTPStatus.BAD_REQUEST, f"{why}; ask for {FORM}, with <kind>:<name> where the kind matters")
