"""The choices at the top of a dashboard. Each one offers only what fits the choices before it."""

from typing import Any

Model = dict[str, Any]
_AT_EACH_RANGE = 2  # offers all values within the time range, even if they are gone
_BY_NAME, _BY_NUMBER = 1, 3
_ALL = {"selected": True, "text": ["All"], "value": ["$__all"]}

DATASOURCE: Model = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "query": "prometheus",
    "regex": "",
    "refresh": 1,
    "hide": 0,
    "multi": False,
    "includeAll": False,
    "options": [],
    "current": {},
    "skipUrlSync": False,
}


def choice(
    name: str, label: str, query: str, *, everything: str = ".*", regex: str = "", several: bool = True
) -> Model:
    """A choice among a query's values. The regular expression `everything` stands for all of them."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "definition": query,
        "query": {"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "regex": regex,
        "refresh": _AT_EACH_RANGE,
        "sort": _BY_NUMBER if regex else _BY_NAME,
        "hide": 0,
        "multi": several,
        "includeAll": several,
        **({"allValue": everything, "current": _ALL} if several else {"current": {}}),
        "options": [],
        "skipUrlSync": False,
    }


def number(name: str, label: str, says: str, value: str) -> Model:
    """A field to type a number into."""
    chosen = {"selected": True, "text": value, "value": value}
    return {
        "name": name,
        "label": label,
        "description": says,
        "type": "textbox",
        "query": value,
        "current": chosen,
        "options": [chosen],
        "hide": 0,
        "skipUrlSync": False,
    }


# if series have no label `cluster`, there is nothing to choose, and the expression for all matches a missing label
CLUSTER = choice("cluster", "Cluster", "label_values(pod_gpu_exporter_build_info, cluster)")
_NODES = 'label_values(node_gpu_capacity{cluster=~"$cluster"}, node)'
NODES = choice("node", "Node", _NODES)
NODE = choice("node", "Node", _NODES, several=False)
# rows of nobody have no namespace, and are left out
NAMESPACE = choice(
    "namespace", "Namespace", 'label_values(pod_gpu_allocated_ratio{cluster=~"$cluster"}, namespace)', everything=".+"
)
WORKLOAD = choice(
    "workload",
    "Workload",
    'label_values(pod_gpu_allocated_ratio{cluster=~"$cluster", namespace=~"$namespace"}, workload_name)',
    everything=".+",
)
# the reader chooses a GPU by its number on the node, and the queries use its UUID
GPU = choice(
    "gpu",
    "GPU",
    'query_result(max by (gpu, UUID) (pod_gpu_device_owners{cluster=~"$cluster", node=~"$node"}))',
    regex='/UUID="(?<value>[^"]+)".*gpu="(?<text>[^"]*)"/',
    several=False,
)
_QUEUES = '{__name__=~"queue:(gpu_quota|pod_gpu_allocated):sum", cluster=~"$cluster"}'
QUEUE = choice("queue", "Queue", f"label_values({_QUEUES}, queue)", everything=".+")
PRICE = number("price", "Price of a GPU-hour", "In the currency of your choice; the panels show it as dollars.", "2.50")
