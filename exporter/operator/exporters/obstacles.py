"""Why the objects of a GPUExporter are not what it wants, each with what to do. Pure."""

from exporter.operator.objects.kinds import SERVICE_ACCOUNT, Key
from exporter.operator.objects.obstacles import Obstacle
from exporter.operator.objects.parts import AnyObject, mapping, one_line, text
from exporter.operator.objects.reading import Invalid


def invalid(error: Invalid) -> Obstacle:
    """The object's spec cannot be used."""
    return Obstacle(
        reason="InvalidSpec",
        message=one_line(f"{error.field}: {error.why} -> change it; until then all stays as it is", 1024),
    )


def in_the_way(item: AnyObject) -> Obstacle:
    """An object of somebody else has a name that is wanted."""
    what = f"{text(item, 'kind')} {text(mapping(item, 'metadata'), 'name')}"
    holds = text(item, "kind") == SERVICE_ACCOUNT.name
    more = ": no rights are given to it, and the DaemonSet stays as it is" if holds else ""
    return Obstacle(
        reason="NotOurs",
        message=one_line(
            f"there is a {what} that is not of this GPUExporter, and is left alone{more} -> delete or rename it, or"
            " give the GPUExporter another name",
            1024,
        ),
        holds=holds,
    )


def overlaps(older: Key, node: str) -> Obstacle:
    """An older GPUExporter chooses nodes of this one, such as `node`. Not all are named: they come and go."""
    return Obstacle(
        reason="Overlaps",
        message=one_line(
            f"GPUExporter {older.namespace}/{older.name}, which is older, chooses nodes of this one, such as {node}:"
            " this one leaves it all nodes that its spec.nodeSelector selects, since both would count each GPU there ->"
            " change spec.nodeSelector of one of the two, or delete one",
            1024,
        ),
    )


def no_counters(name: str, key: str, *, is_there: bool) -> Obstacle:
    """The ConfigMap that spec.collectors.configMap names is not there, or has no such key."""
    lacks = f"has no key {key}" if is_there else "is not there"
    return Obstacle(
        reason="CollectorsMissing",
        message=one_line(
            f"the ConfigMap {name} of spec.collectors.configMap {lacks} -> make it, in the GPUExporter's namespace;"
            " until then the DaemonSet stays as it is",
            1024,
        ),
        holds=True,
    )


def no_pod_monitors() -> Obstacle:
    """A PodMonitor is asked for, and the cluster has no such kind."""
    return Obstacle(
        reason="PodMonitorMissing",
        message='spec.serviceMonitor.enabled is "on", and the cluster does not know PodMonitors -> install the CRDs of'
        " Prometheus Operator, or set it to auto; all else is kept in line",
    )
