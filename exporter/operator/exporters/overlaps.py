"""GPUExporters that choose the same nodes. The older one gets them, since two would count each GPU twice. Pure."""

from collections.abc import Mapping, Sequence
from itertools import islice, product

from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.operator.objects.kinds import is_controlled_by, metadata, name_of, uid_of
from exporter.operator.objects.resources import GPUExporterSpec, Object, Toleration, read_exporter
from exporter.reading import Invalid

# The most terms of a nodeAffinity. If more are needed, some nodes get no pod rather than two.
MOST_TERMS = 64
# the fields by which a GPUExporter, and its DaemonSet, choose nodes
_CHOOSE = ("nodeSelector", "tolerations")
_ABOUT = ("namespace", "name", "uid", "creationTimestamp", "deletionTimestamp")
# every pod of a DaemonSet tolerates these taints (pkg/controller/daemon/util/daemonset_util.go)
_OF_KUBERNETES = "node.kubernetes.io/"


def age(exporter: AnyObject) -> tuple[str, str, str]:
    """The key that sorts GPUExporters by age, the oldest first, in the same order for each of them."""
    about = metadata(exporter)
    return text(about, "creationTimestamp"), text(about, "namespace"), text(about, "name")


def used_of(exporter: AnyObject) -> AnyObject:
    """A GPUExporter with only the fields that this module reads; of its status, only whether it has one."""
    return {
        "kind": exporter.get("kind"),
        "metadata": _picked(metadata(exporter), _ABOUT),
        "spec": _picked(mapping(exporter, "spec"), _CHOOSE),
        "status": {"is_there": True} if mapping(exporter, "status") else {},
    }


def _picked(item: AnyObject, names: Sequence[str]) -> AnyObject:
    return {name: item[name] for name in names if name in item}


def choice_of(exporter: AnyObject, daemon_set: AnyObject | None) -> GPUExporterSpec | None:
    """A spec that chooses the nodes on which a GPUExporter's DaemonSet runs, or will run; None if it has no nodes."""
    if daemon_set is not None and is_controlled_by(daemon_set, uid_of(exporter)):
        pod = mapping(daemon_set, "spec", "template", "spec")
        return spec_of_nodes({"spec": {"nodeSelector": {}, "tolerations": [], **pod}})
    # a GPUExporter with a status but no DaemonSet is kept from its nodes by something
    return None if mapping(exporter, "status") else spec_of_nodes(exporter)


def spec_of_nodes(exporter: AnyObject) -> GPUExporterSpec | None:
    """A spec that chooses the nodes that a GPUExporter wants; None if its own spec is invalid."""
    try:
        return read_exporter({"spec": _picked(mapping(exporter, "spec"), _CHOOSE)})
    except Invalid:
        return None


def both(spec: GPUExporterSpec, other: GPUExporterSpec) -> Mapping[str, str] | None:
    """The labels of a node that both specs select; None if no node can have them."""
    labels = {**spec.node_selector, **other.node_selector}
    return labels if labels.items() >= spec.node_selector.items() else None


def shared(spec: GPUExporterSpec, other: GPUExporterSpec, nodes: Sequence[AnyObject]) -> Sequence[str]:
    """The names of the nodes whose taints both specs tolerate; `nodes` have the labels that both select."""
    return sorted(name_of(node) for node in nodes if _bears(spec, node) and _bears(other, node))


def elsewhere(own: Mapping[str, str], others: Sequence[Mapping[str, str]]) -> Object:
    """The affinity that keeps pods with the node selector `own` from nodes that a selector of `others` matches.

    Terms are alternatives, and in each term a node differs from every other selector in one label. If another selector
    matches all nodes of `own`, the only term is an empty one, which matches no node.
    """
    choices = product(*(_differences(own, other) for other in others))
    terms = [{"matchExpressions": [*expressions]} for expressions in islice(choices, MOST_TERMS)]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms or [{}]}}}


def _differences(own: Mapping[str, str], other: Mapping[str, str]) -> Sequence[Object]:
    """A node to which one of these expressions applies is not selected by `other`."""
    differing = {key: value for key, value in other.items() if own.get(key) != value}
    return [{"key": key, "operator": "NotIn", "values": [value]} for key, value in differing.items()]


def _bears(spec: GPUExporterSpec, node: AnyObject) -> bool:
    for taint in mappings(mapping(node, "spec"), "taints"):
        keeps_nobody_out = text(taint, "effect") == "PreferNoSchedule" or text(taint, "key").startswith(_OF_KUBERNETES)
        if not keeps_nobody_out and not any(_tolerates(toleration, taint) for toleration in spec.tolerations):
            return False
    return True


def _tolerates(toleration: Toleration, taint: AnyObject) -> bool:
    return (
        (not toleration.effect or toleration.effect == text(taint, "effect"))
        and (not toleration.key or toleration.key == text(taint, "key"))
        and (toleration.operator == "Exists" or (toleration.value or "") == text(taint, "value"))
    )
