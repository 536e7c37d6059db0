"""The queries to Prometheus, in PromQL. Pure.

The label metrics_path, which every scrape config in deploy/prometheus sets, identifies the pages of node exporters. No
other program has a path /gpu/metrics, so dcgm-exporter's series of the same names are not taken for ours.

A series ends with its pod, and is marked as stale. last_over_time(x[30s]) ignores such marks, so a GPU would count for
two pods. So the queries use instant selectors, and `up`, which comes with the series, shows their age.

Tests: tests/cluster/prometheus/test_nodes.py.
"""

from collections.abc import Iterable, Mapping, Sequence

from exporter.dcgm.fields import FIELDS, Field
from exporter.model.node_answers import OWN_FAMILIES
from exporter.ownership.labels import WITHOUT_OWNERS
from exporter.ownership.queues import QUEUE_LABEL

SAMPLES_PAGE = "/gpu/metrics"
OWN_PAGE = "/metrics"
PAGES = (SAMPLES_PAGE, OWN_PAGE)
# The time for which the nodes of a Prometheus that died are still known, and missing. (Prometheus marks the `up` of
# a removed target as stale, but a dead one marks nothing.) This needs a server that lets a query say how far it looks
# back; with Mimir the time is 5 minutes.
KNOWN_SECONDS = 900.0
# The time for which a node is missing after its target was removed: an update of a DaemonSet deletes a pod before it
# creates the next one, and without the node the cluster's sums would be too small.
LEFT_SECONDS = 120.0
# The number of queries for all fields. One answer with all of them would be too large.
PARTS = 7

# The label that says what a row of `targets` is about, and its values.
ABOUT = "about"
UP = "up"
SCRAPED = "scraped"
LATELY = "lately"

INFO = "pod_gpu_info"
OWNERS = "pod_gpu_device_owners"
ALLOCATED = "pod_gpu_allocated_ratio"
UNMATCHED = "pod_gpu_exporter_unmatched_devices"
REASON = "reason"
VERDICT = "pod_gpu_device_verdict"
WORD = "verdict"
IDLE_SINCE = "pod_gpu_idle_since_timestamp_seconds"
SOURCE_UP = "pod_gpu_exporter_source_up"
SOURCE = "source"
KUBELET = "kubelet"
MEASURED: Mapping[str, str] = {family: name for name, family in OWN_FAMILIES.items()}
# a label of MEASURED: "false" if the container's pod does not hold the device
HOLDS = "holds"
_OF_DEVICES = ("UUID", "GPU_I_ID", "GPU_I_PROFILE", "gpu", "device", "modelName")
_OF_OWNERS = ("pod", "namespace", "container")
_OF_WORKLOADS = ("workload_name", "workload_kind", QUEUE_LABEL)
# labels of INFO, if samples name no owner (--labels.owners off)
_IN_PLACE_OF_SAMPLES = (WITHOUT_OWNERS[0], "gpu_shared", "pod_uid")
_OF_SAMPLES = ("uuid", "gpu_uuid", "model_name", "gpu_shared", "pod_uid")
KNOWN: Mapping[str, Field] = {name: field for name, field in FIELDS.items() if field.json}


def targets(matchers: str) -> str:
    """The query for the pages of all exporters.

    Its rows are, by the label ABOUT, a page's `up` (UP), the time of its scrape (SCRAPED), or a node that was there
    until lately (LATELY).
    """
    pages = _selector("up", f'metrics_path=~"{"|".join(PAGES)}"', matchers)
    samples = _selector("up", f'metrics_path="{SAMPLES_PAGE}"', matchers)
    return (
        f"({_about(UP, pages)} or {_about(SCRAPED, f'timestamp({pages})')}) and on (instance) {samples}"
        f" or {_about(LATELY, f'group by (node) (last_over_time({samples}[{LEFT_SECONDS:.0f}s]))')}"
    )


def own(matchers: str) -> str:
    """The query for the exporters' own /metrics: holders of devices, workloads of pods, and the use of containers."""
    names = (INFO, OWNERS, ALLOCATED, SOURCE_UP, UNMATCHED, VERDICT, IDLE_SINCE, *MEASURED)
    labels = (*_OF_DEVICES, *_exported(_OF_OWNERS), *_OF_WORKLOADS, *_IN_PLACE_OF_SAMPLES, SOURCE, REASON, HOLDS, WORD)
    return _rows(names, OWN_PAGE, matchers, labels)


def samples(matchers: str, owner_labels: Sequence[str]) -> Sequence[str]:
    """The queries for the samples of devices, by all their names. `owner_labels` are --labels.names of the nodes."""
    of_fields: dict[str, list[str]] = {}
    for name, field in KNOWN.items():
        of_fields.setdefault(field.json, []).append(name)
    fields = list(of_fields.values())
    labels = (*_OF_DEVICES, *_OF_SAMPLES, *_exported(owner_labels))
    return [
        _rows([name for names in fields[part::PARTS] for name in names], SAMPLES_PAGE, matchers, labels)
        for part in range(PARTS)
    ]


def _rows(names: Iterable[str], page: str, matchers: str, labels: Iterable[str]) -> str:
    """The query for the series of these names by these labels. An exporter that two servers scrape gives one row."""
    selector = _selector("", f'__name__=~"{"|".join(names)}",metrics_path="{page}"', matchers)
    return f"max by (__name__, instance, {', '.join(labels)}) ({selector})"


def _selector(name: str, first: str, matchers: str) -> str:
    return f"{name}{{{first}{matchers and ','}{matchers}}}"


def _about(what: str, query: str) -> str:
    return f'label_replace({query}, "{ABOUT}", "{what}", "", "")'


def _exported(names: Iterable[str]) -> Iterable[str]:
    """The labels, and the names that Prometheus gives them if the target has such a label and honor_labels is off."""
    for name in names:
        yield from (name, f"exported_{name}")
