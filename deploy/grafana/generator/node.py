"""The dashboard of a node: its GPUs, their holders, and the health of the GPUs and the exporter."""

from deploy.grafana.generator.dashboard import Dashboard
from deploy.grafana.generator.panels import (
    BAD,
    CELSIUS,
    FLOW,
    FULL,
    GPUS,
    HERTZ,
    IDLE,
    PERCENT,
    USE,
    WARM,
    WATTS,
    Query,
    Row,
    lines,
    new_xids,
    stat,
)
from deploy.grafana.generator.promql import (
    NODE as CHOSEN,
)
from deploy.grafana.generator.promql import (
    OF_GPU,
    devices,
    flow,
    free,
    level,
    link_errors,
    memory,
    named,
    once,
    parts,
    ratio,
    watts,
    xids,
)
from deploy.grafana.generator.tables import Column, table
from deploy.grafana.generator.variables import CLUSTER, DATASOURCE, NODE

_IN = f"{{{CHOSEN}}}"
# both pages have the exporter's health, so one is chosen
_OWN = f'{{{CHOSEN}, metrics_path="/metrics"}}'
_THROTTLED = once(f'rate(pod_gpu_throttled_seconds_total{{{CHOSEN}, reason!="low_util"}}[$__rate_interval])', "reason")
_DEVICE = "GPU {{gpu}} {{GPU_I_ID}}"
_OWNER = "namespace, pod, container, gpu, UUID, modelName, GPU_I_ID, GPU_I_PROFILE, resource"


def _worst(field: str) -> Query:
    return Query(level(field, CHOSEN, OF_GPU), "GPU {{gpu}}")


DASHBOARD = Dashboard(
    name="node",
    says="The GPUs of a node: what they do, who holds them, and how healthy they are; and the exporter itself.",
    variables=[DATASOURCE, CLUSTER, NODE],
    rows=[
        Row(
            panels=[
                stat("GPUs", "Physical GPUs.", f"sum(node:node_gpu_capacity:sum{_IN})"),
                stat("Held", "The part of the GPUs that pods hold now.",
                     f"sum(node:node_gpu_allocated:sum{_IN}) / sum(node:node_gpu_capacity:sum{_IN})", PERCENT, FULL,
                     most=1),
                stat("Free, whole", "Healthy GPUs of which nobody holds a part.",
                     f"sum({free(CHOSEN)})", GPUS),
                stat("Used of held", "How active the held GPUs are.",
                     f"sum(node:pod_gpu_active_seconds:rate5m{_IN}) / sum(node:pod_gpu_observed_seconds:rate5m{_IN})",
                     PERCENT, USE, most=1),
                stat("Held but idle", "GPUs that are held while nothing runs on them.",
                     f"sum(node:pod_gpu_idle_seconds:rate5m{_IN})", GPUS, IDLE),
                stat("Power", "What its GPUs draw.", f"sum(node:pod_gpu_energy_joules:rate5m{_IN})", WATTS),
                stat("Hottest GPU", "Near 90 degrees a GPU lowers its clocks.",
                     f'max({level("temperature", CHOSEN)})', CELSIUS, WARM),
                new_xids(CHOSEN),
            ]
        ),
        Row(
            title="GPUs",
            panels=[
                table("Each GPU", "A GPU that is cut into MIG instances is one line.", "cluster, node, gpu, UUID",
                      Column("Containers", f"sum by ({OF_GPU}) ({devices('gpu|mig', CHOSEN)})", "short"),
                      Column("Active", f"max by ({OF_GPU}) ({ratio('activity', CHOSEN)})", PERCENT, USE),
                      Column("Memory", memory(CHOSEN, OF_GPU), PERCENT, FULL),
                      Column("Power", f"sum by ({OF_GPU}) ({named(watts(CHOSEN, 'cluster, node, UUID'))})", WATTS),
                      Column("Temperature", level("temperature", CHOSEN, OF_GPU), CELSIUS, WARM)),
                lines("Active", "How much of the time something ran on each GPU or MIG instance.",
                      Query(ratio("activity", CHOSEN), _DEVICE), unit=PERCENT, most=1),
                lines("Memory", "The used part of each device's memory.", Query(memory(CHOSEN), _DEVICE),
                      unit=PERCENT, most=1),
                lines("Power", "What each GPU draws, whoever holds it.",
                      Query(named(watts(CHOSEN, "cluster, node, UUID")), "GPU {{gpu}}"), unit=WATTS, stacked=True),
                lines("Temperature", "Of the GPUs.", _worst("temperature"), unit=CELSIUS, levels=WARM),
                lines("Clocks", "Of the multiprocessors. A GPU without work lowers them.", _worst("sm clock"),
                      unit=HERTZ),
                lines("Throttled", "GPUs whose clocks were lowered, by reason. Low clocks without work do not count.",
                      Query(named(f"sum by (cluster, node, UUID, reason) ({_THROTTLED})"), "GPU {{gpu}} {{reason}}"),
                      unit=GPUS),
            ],
        ),
        Row(
            title="Who holds what",
            panels=[
                table("Containers", "Each container that holds a GPU, a share or a MIG instance of it now.", _OWNER,
                      Column("Part of the GPU",
                             parts(CHOSEN, "namespace, pod, container, cluster, node, UUID, GPU_I_ID",
                                   f"cluster, node, {_OWNER}"), "short")),
                lines("Containers on each device", "With more than one, the device is shared.",
                      Query(devices("gpu|mig", CHOSEN), _DEVICE)),
                lines("Held by pod", "GPUs. A share or a MIG instance counts with its part.",
                      Query(f"sum by (namespace, pod) (pod:pod_gpu_allocated_seconds:rate5m{_IN})",
                            "{{namespace}}/{{pod}}"), unit=GPUS, stacked=True),
            ],
        ),
        Row(
            title="Health of the GPUs",
            panels=[
                table("XIDs", "Errors that the driver reported in the time range, with the pod if one held the GPU "
                      "alone.", "namespace, pod, UUID, xid",
                      Column("Errors", xids(CHOSEN, "namespace, pod, UUID, xid"), "short", BAD),
                      most_first="Errors", height=7),
                lines("Memory errors", "Since the driver was loaded. After an uncorrected one the GPU needs a reset.",
                      Query(level("uncorrected", CHOSEN, OF_GPU), "GPU {{gpu}} uncorrected"),
                      Query(level("corrected", CHOSEN, OF_GPU), "GPU {{gpu}} corrected")),
                lines("Replaced rows of memory, and PCIe retries", "Each row was replaced after an uncorrected "
                      "error. Retries mean a bad connection to the board.",
                      Query(level("remapped", CHOSEN, OF_GPU), "GPU {{gpu}} rows"),
                      Query(level("pending", CHOSEN, OF_GPU), "GPU {{gpu}} waits for a reset"),
                      Query(level("replays", CHOSEN, OF_GPU), "GPU {{gpu}} retries")),
            ],
        ),
        Row(
            title="Links",
            panels=[
                table("Errors of links", "Errors in the time range, with the pods that held the GPU then. A row "
                      "without a link counts all links. Kinds overlap: a replay repairs a CRC error.",
                      "namespace, pod, gpu, UUID, link, kind",
                      Column("Errors", named(link_errors(CHOSEN, "cluster, node, namespace, pod, UUID, link, kind")),
                             "short", BAD), most_first="Errors", height=7),
                lines("Errors within a day", "GpuLinkErrors warns of more than 100 replays, and of more than 2 "
                      "errors that a healthy link never has.",
                      Query(named(f"link:pod_gpu_link_errors:new1d{_IN}"), "GPU {{gpu}} link {{link}} {{kind}}")),
                lines("PCIe", "Bytes to and from each GPU.", Query(flow("pcie received", CHOSEN), "to GPU {{gpu}}"),
                      Query(flow("pcie sent", CHOSEN), "from GPU {{gpu}}"), unit=FLOW),
                lines("NVLink", "Bytes between each GPU and the others.",
                      Query(flow("nvlink received", CHOSEN), "to GPU {{gpu}}"),
                      Query(flow("nvlink sent", CHOSEN), "from GPU {{gpu}}"), unit=FLOW),
                lines("PCIe lanes", "Lanes that each GPU uses, and the most that card and slot allow. dcgm-exporter "
                      "must measure them.",
                      Query(level("lanes", CHOSEN, OF_GPU), "GPU {{gpu}}"),
                      Query(level("most lanes", CHOSEN, OF_GPU), "GPU {{gpu}}, most")),
            ],
        ),
        Row(
            title="The exporter",
            folded=True,
            panels=[
                lines("Sources", "1 where a source answers. The reason of a failure is at the top of /metrics.",
                      Query(f"pod_gpu_exporter_source_up{_OWN}", "{{source}}"), most=1),
                lines("How long sources take", "The exporter gives up on a source after 5 s.",
                      Query(f"pod_gpu_exporter_source_duration_seconds{_OWN}", "{{source}}"), unit="s"),
                lines("Age of the kubelet's word", "How long ago the kubelet last named the owners.",
                      Query(f"pod_gpu_exporter_assignments_age_seconds{_OWN}", "{{node}}"), unit="s"),
                lines("Devices without samples", "Devices that the kubelet handed out but no page shows, by reason. "
                      "/debug/mapping names them.",
                      Query(f"sum by (reason) (pod_gpu_exporter_unmatched_devices{_OWN})", "{{reason}}")),
                lines("Not accounted for", "How much of the time nobody could see who held what.",
                      Query(f"sum by (reason) (rate(pod_gpu_accounting_gap_seconds_total{_OWN}[$__rate_interval]))",
                            "{{reason}}"), unit=PERCENT),
                lines("Memory of the process", "The shipped limit is 128 MiB.",
                      Query("process_resident_memory_bytes" + _OWN, "{{node}}"), unit="bytes"),
            ],
        ),
    ],
)  # fmt: skip
