"""A trigger's metadata, which KEDA sends with every call → the question. Pure.

The metadata is texts by keys. KEDA adds keys of its own (the scaler's address, TLS), and a later version may add
others. So a key is refused only if it looks like a misspelt key of ours.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from exporter.cluster.scaling import ScalingQuestion, Unanswerable, check_metric, question_of
from exporter.ownership.workloads import is_object_name
from exporter.reading import shown

METRIC, TARGET, THRESHOLD, WORKLOAD = KEYS = ("metric", "target", "activationThreshold", "workload")
# The keys that KEDA's triggers `external` and `external-push` read themselves.
KEDAS_KEYS = frozenset({"scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey"})
MOST_KEYS = 64
# KEDA hands the target to the HorizontalPodAutoscaler in whole thousandths: less than half of one becomes 0.
LEAST_TARGET = 0.001
# KEDA before 2.17 reads whole numbers of 64 bits
MOST_TARGET = 2.0**53
MOST_SHOWN_CHARS = 100
_NUMBER = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """A trigger of a ScaledObject. If `workload` is "", the ScaledObject's scaleTargetRef names the workload."""

    namespace: str
    scaled_object: str
    metric: str
    target: float
    threshold: float
    workload: str

    def question(self, workload: str) -> ScalingQuestion:
        """The question about a workload, which is given as its name or `<kind>:<name>`.

        Raises:
            Unanswerable: no workload can have this name (400).
        """
        try:
            return question_of(self.namespace, workload, self.metric)
        except ValueError as error:
            raise _refused(f"{WORKLOAD}: {error}; give a name, or <kind>:<name> such as deployment:trainer") from None


def read_trigger(namespace: str, name: str, metadata: Mapping[str, str]) -> Trigger:
    """Read a trigger of the ScaledObject `name`.

    Raises:
        Unanswerable: the metadata is wrong (400). The text names the key, and says what to do.
    """
    if not is_object_name(name):
        raise _refused(f"{shown(name)} is no ScaledObject's name")
    if len(metadata) > MOST_KEYS:
        raise _refused(f"there are {len(metadata)} keys in the trigger's metadata; leave out what is not needed")
    for key in metadata:
        _check_key(key)
    metric = metadata.get(METRIC, "").strip()
    if not metric:
        raise _refused(f"{METRIC} is missing from the trigger's metadata; give a numeric field of /container/metrics")
    if len(metric) > MOST_SHOWN_CHARS:
        raise _refused(f"{METRIC}: {shown(metric)} is no metric's name")
    try:
        check_metric(metric)
    except Unanswerable as error:
        raise _refused(f"{METRIC}: {error}") from None
    trigger = Trigger(
        namespace=namespace,
        scaled_object=name,
        metric=metric,
        target=_number(metadata, TARGET, None, LEAST_TARGET),
        threshold=_number(metadata, THRESHOLD, "0", 0.0),
        workload=metadata.get(WORKLOAD, "").strip(),
    )
    if WORKLOAD in metadata and not trigger.workload:
        raise _refused(f"{WORKLOAD} is empty; leave it out, and the ScaledObject's scaleTargetRef says what it is")
    if len(namespace) > MOST_SHOWN_CHARS or len(trigger.workload) > 4 * MOST_SHOWN_CHARS:
        raise _refused(f"{shown(namespace)} or {shown(trigger.workload)} is no name")
    trigger.question(trigger.workload or name)  # checks the namespace, too
    return trigger


def _check_key(key: str) -> None:
    """Refuse a misspelt key of ours. Otherwise its value would be ignored without a word."""
    if key in KEYS or key in KEDAS_KEYS:
        return
    lower = {key_name.lower(): key_name for key_name in KEYS}
    meant = lower.get(key.lower())
    if meant is None and len(key) <= 2 * len(THRESHOLD):
        from difflib import get_close_matches  # noqa: PLC0415 - only with keys of KEDA's or of somebody's making

        meant = lower.get(next(iter(get_close_matches(key.lower(), lower, 1, 0.8)), ""))
    if meant is not None:
        raise _refused(f"{shown(key)} is not a key of the trigger's metadata; did you mean {meant}?")


def _number(metadata: Mapping[str, str], key: str, default: str | None, least: float) -> float:
    text = metadata.get(key, default)
    if text is None:
        raise _refused(f'{key} is missing from the trigger\'s metadata; give what one pod may have, such as "70"')
    text = text.strip()
    value = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not least <= value <= MOST_TARGET:
        raise _refused(f'{key}: {shown(text)} is not allowed; give a plain number of at least {least:g}, such as "70"')
    return value


def _refused(why: str) -> Unanswerable:
    return Unanswerable(HTTPStatus.BAD_REQUEST, why)
