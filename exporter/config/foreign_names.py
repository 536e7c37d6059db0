"""Flags and keys of other programs, such as dcgm-exporter, node_exporter and top, and their counterparts here.

This module is imported only after a user typed a name that does not exist.

Tests: tests/cli/test_mistakes.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherNames:
    """Names of other programs, and their counterparts.

    Attributes:
        typed: the names that a user may type, without dashes.
        here: the names of this program's counterparts. The first that the user's command has is suggested.
        do: the advice if the command has none of `here`; for the commands in `of` always.
        of: commands.
    """

    typed: Sequence[str]
    here: Sequence[str]
    do: str
    of: Sequence[str]


def _names(typed: str, *, here: str = "", do: str = "", of: str = "") -> OtherNames:
    return OtherNames(typed=typed.split(), here=here.split(), do=do, of=of.split())


OTHER_NAMES = (
    _names(
        "o out output output-file file",
        of="report",
        do="the report goes to standard output: put > FILE behind it; --format says as what",
    ),
    _names(
        "n namespace namespaces",
        of="report",
        do="--match namespace=NAME reports one namespace alone",
    ),
    _names(
        "team label",
        of="report",
        do="--by label:team groups by a label of pods, --match team=NAME keeps one of its values",
    ),
    _names(
        "url exporter server target",
        of="doctor healthcheck",
        do="name the exporter with --web.listen-address HOST:PORT, without http://",
    ),
    _names(
        "node nodename namespace pod workload gpu",
        of="top",
        do="--filter NAME shows only the lines with that name: a node's, namespace's, pod's or workload's",
    ),
    _names(
        "a address addr bind bind-address host http-address http.address http-port listen listen-address"
        " listen-port listen.address metrics-addr metrics-bind-address metrics-port port health-probe-bind-address"
        " telemetry-host telemetry-port web.address web.listen web.port",
        here="web.listen-address",
    ),
    _names(
        "dcgm dcgm-exporter dcgm-exporter-url dcgm-host dcgm-port dcgm-url dcgm.address endpoint metrics-url"
        " scrape-url source target upstream url",
        here="dcgm.url cluster.node prometheus url",
    ),
    _names(
        "server address a exporter host port",
        here="url prometheus",
    ),
    _names(
        "prom-url prometheus prometheus-server prometheus-url prometheus.address prometheus.url",
        here="prometheus cluster.prometheus",
    ),
    _names(
        "kubelet-socket pod-resources-kubelet-socket pod-resources-socket socket",
        here="kubelet.socket",
    ),
    _names(
        "config config-path configuration settings",
        here="config.file",
    ),
    _names(
        "auth basic-auth cert key tls tls-cert tls-cert-file tls-key tls-private-key-file tls.cert-file"
        " tls.key-file web-config-file",
        here="web.config.file http-config",
    ),
    _names(
        "debug loglevel logtostderr quiet stderrthreshold v verbose verbosity zap-log-level",
        here="log.level",
    ),
    _names(
        "host-name hostname node nodename node.name",
        here="node-name cluster.node",
    ),
    _names(
        "n namespace namespaces",
        here="cluster.namespace operator.namespace dcgm.selector-namespace",
    ),
    _names(
        "nvidia-resource-names resource resource-names",
        here="resources",
    ),
    _names(
        "kubernetes-enable-pod-labels kubernetes-pod-label-allowlist-regex labels metric-labels-allowlist pod-labels",
        here="labels.pod-labels",
    ),
    _names(
        "kubernetes-enable-pod-uid pod-uid",
        here="labels.pod-uid",
    ),
    _names(
        "kubernetes-enable-dra",
        here="dra",
    ),
    _names(
        "kubernetes-virtual-gpus",
        here="sharing",
    ),
    _names(
        "metric-allowlist metrics-allow",
        here="families.allow",
    ),
    _names(
        "metric-denylist metrics-deny",
        here="families.deny",
    ),
    _names(
        "collect.compute-apps collect-compute-apps",
        here="processes.expose",
    ),
    _names(
        "collect.timeout collect-timeout",
        here="dcgm.timeout",
    ),
    _names(
        "use-old-namespace o",
        here="labels.names",
    ),
    _names(
        "leader-elect leader-election",
        here="operator.leader-election",
    ),
    _names(
        "b batch n 1",
        here="once",
    ),
    _names(
        "d delay i l loop refresh",
        here="interval",
    ),
    _names(
        "o file out output-file path",
        here="output",
    ),
    _names(
        "days last range window",
        here="since",
    ),
    _names(
        "group group-by groupby",
        here="by",
    ),
    _names(
        "gpu-price price",
        here="price-per-gpu-hour",
    ),
    _names(
        "output o",
        here="format",
    ),
    _names(
        "count gpu num-gpus",
        here="gpus",
    ),
    _names(
        "k kubernetes",
        do="pods are always named; leave it out",
    ),
    _names(
        "kubernetes-gpu-id-type",
        do="each kind of device id is understood; leave it out",
    ),
    _names(
        "f collectors c collect-interval m configmap-data p d s devices cpu-devices switch-devices r"
        " remote-hostengine-info x xid-count-window-size clock-events-count-window-size rbmn"
        " replace-blanks-in-model-name no-hostname enable-dcgm-log dcgm-log-level hpc-job-mapping-dir"
        " container-labels container-runtime-socket disable-startup-validate dump-enabled dump-directory"
        " dump-retention dump-compression enable-gpu-bind-unbind-watch gpu-bind-unbind-poll-interval",
        do="dcgm-exporter takes it: give it to that program, and name its page with --dcgm.url",
    ),
    _names(
        "fake-gpus mock simulate",
        do="the command demo simulates GPUs",
    ),
    _names(
        "web.telemetry-path telemetry-path metrics-path metrics.path web.metrics-path path",
        do=(
            "the paths are fixed: set metrics_path: /gpu/metrics in Prometheus' scrape config, and /metrics for the"
            " exporter's own"
        ),
    ),
    _names(
        "nvidia-smi-command query-field-names query-field-names-exclude",
        do=(
            "nvidia-smi is not asked: name dcgm-exporter's page with --dcgm.url, or have NVML make one with --dcgm.mode"
            " off"
        ),
    ),
    _names(
        "collect.interval scrape-interval interval poll-interval",
        do=(
            "each scrape reads the GPUs' page anew: set scrape_interval in Prometheus; dcgm-exporter's own is its"
            " --collect-interval"
        ),
    ),
    _names(
        "shutdown-on-error",
        do="the exporter goes on and shows the failure as pod_gpu_exporter_source_up 0; leave it out",
    ),
    _names(
        "web.systemd-socket web-systemd-socket web.network",
        do="name each address to listen at with --web.listen-address",
    ),
    _names(
        "web.read-timeout web-read-timeout web.read-header-timeout web.write-timeout web-write-timeout"
        " web.idle-timeout web.max-requests web.disable-exporter-metrics web.enable-pprof enable-pprof"
        " web.enable-lifecycle",
        do="there is nothing to set: leave it out",
    ),
    _names(
        "path.procfs path.sysfs path.rootfs path.udev.data",
        do="folders are read where they are: leave it out, and mount those of the node at the same paths",
    ),
    _names(
        "collector.textfile.directory",
        do="the command textfile writes into that folder: textfile --output FOLDER/gpu.prom",
    ),
    _names(
        "kubeconfig context",
        do="no kubeconfig is read: run kubectl proxy, and name it with --kubernetes.url http://127.0.0.1:8001",
    ),
    _names(
        "version V",
        do="it stands alone: pod-gpu-metrics-exporter --version",
    ),
)
