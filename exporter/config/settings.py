"""Everything that can be set: one table, from which the command line, environment names and file keys are made.

Each setting has a parser (parsers.py). Errors are worded where the table is used (config.py).
"""

import re
from dataclasses import dataclass

from exporter.config.parsers import (
    GPU_OPERATOR_NAMESPACES,
    MAX_SOCKET_PATH_BYTES,
    Parse,
    absolute_path,
    address,
    base_url,
    duration,
    family_name,
    label_names,
    log_level,
    namespace,
    not_empty,
    one_of,
    positive_duration,
    positive_integer,
    regex,
    selectors,
    socket_path,
    url,
)

ENVIRONMENT_PREFIX = "POD_GPU_EXPORTER_"
DEFAULT_DCGM_URL = "http://127.0.0.1:9401/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One flag: `name` without its dashes, how a text becomes a value, and what is allowed, in words."""

    name: str
    parse: Parse
    allowed: str
    help: str
    default: str | None = None
    repeatable: bool = False
    also_env: str = ""
    metavar: str = "TEXT"

    @property
    def flag(self) -> str:
        """As it stands on the command line."""
        return f"--{self.name}"

    @property
    def parameter(self) -> str:
        """As a Python name."""
        return re.sub(r"[.-]", "_", self.name)

    @property
    def env(self) -> str:
        """The environment name: `--web.listen-address` is POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS."""
        return ENVIRONMENT_PREFIX + self.parameter.upper()


_A_DURATION = "a duration such as 500ms, 5s or 1m"
SETTINGS = (
    Setting(
        name="web.listen-address",
        parse=address,
        allowed="an address such as :9400, 127.0.0.1:9400 or [::1]:9400",
        help="Where to listen.",
        default=":9400",
        repeatable=True,
        also_env="HTTP_LISTEN_PORT",
        metavar="ADDRESS",
    ),
    Setting(
        name="web.config.file",
        parse=absolute_path,
        allowed="an absolute path",
        help="TLS, client certificates, passwords and headers, in the form of Prometheus' exporter-toolkit.",
        metavar="FILE",
    ),
    Setting(
        name="kubelet.socket",
        parse=socket_path,
        allowed=f"an absolute path of at most {MAX_SOCKET_PATH_BYTES} bytes",
        help="The kubelet's pod-resources socket. Mount its directory, not the file: a kubelet restart replaces it.",
        default="/var/lib/kubelet/pod-resources/kubelet.sock",
        also_env="DCGM_POD_RESOURCES_KUBELET_SOCKET",
        metavar="PATH",
    ),
    Setting(
        name="kubelet.max-age",
        parse=duration,
        allowed=_A_DURATION,
        help="A kubelet's answer younger than this is not asked for again.",
        default="1s",
        metavar="DURATION",
    ),
    Setting(
        name="kubelet.timeout",
        parse=positive_duration,
        allowed=f"{_A_DURATION}, above 0",
        help="How long one call to the kubelet may take.",
        default="5s",
        metavar="DURATION",
    ),
    Setting(
        name="kubelet.max-stale",
        parse=duration,
        allowed=_A_DURATION,
        help="How long the last known owners stay in force when the kubelet fails, or lists no pod since it started. "
        "Default: 10m while the connection is refused (the kubelet is down) or no pod is listed, 1m for any other "
        "failure.",
        metavar="DURATION",
    ),
    Setting(
        name="resources",
        parse=not_empty,
        allowed="a glob such as nvidia.com/*",
        help="Which extended resources are GPUs.",
        default="nvidia.com/*",
        repeatable=True,
        also_env="NVIDIA_RESOURCE_NAMES",
        metavar="GLOB",
    ),
    Setting(
        name="device-rules",
        parse=absolute_path,
        allowed="an absolute path",
        help="More rules for device ids, and more labels of samples that say which device they are of: a YAML file.",
        metavar="FILE",
    ),
    Setting(
        name="inventory.file",
        parse=absolute_path,
        allowed="an absolute path",
        help="The node's GPUs and their MIG instances, to resolve MIG-<uuid> ids: a YAML or JSON file.",
        metavar="FILE",
    ),
    Setting(
        name="dra",
        parse=one_of("auto", "on", "off"),
        allowed="auto, on or off",
        help="Devices of DRA claims too, found by ResourceSlices (Kubernetes API) or CDI names; adds dra_… labels. auto"
        " asks the Kubernetes API only once the kubelet names a claim that needs it, and if a token is there.",
        default="auto",
        metavar="auto|on|off",
    ),
    Setting(
        name="dcgm.url",
        parse=url,
        allowed="an http or https URL such as http://127.0.0.1:9401/metrics",
        help="dcgm-exporter's page. Also made of DCGM_HOST, DCGM_PORT (9400) and DCGM_METRICS_ENDPOINT (/metrics). "
        f"Default, if no other source of GPU samples is named: {DEFAULT_DCGM_URL}.",
        repeatable=True,
        metavar="URL",
    ),
    Setting(
        name="dcgm.selector",
        parse=selectors,
        allowed="auto, or labels such as app=dcgm-exporter,tier=gpu",
        help="Find dcgm-exporter's pods on this node by labels; auto knows the usual ones. DCGM_HOST wins over it.",
        also_env="DCGM_LABELS",
        metavar="auto|LABELS",
    ),
    Setting(
        name="dcgm.selector-namespace",
        parse=namespace,
        allowed="a namespace's name",
        help="Where --dcgm.selector may find pods: whoever may make a pod in it may write GPU samples. Default: the"
        " exporter's own namespace (POD_NAMESPACE, else its service account's) and the GPU operator's: "
        + ", ".join(GPU_OPERATOR_NAMESPACES)
        + ".",
        repeatable=True,
        metavar="NAMESPACE",
    ),
    Setting(
        name="dcgm.file",
        parse=absolute_path,
        allowed="an absolute path such as /run/prometheus/dcgm.prom",
        help="A .prom file of GPU samples, as the shell version of dcgm-exporter writes it.",
        repeatable=True,
        metavar="FILE",
    ),
    Setting(
        name="dcgm.file-max-age",
        parse=positive_duration,
        allowed=f"{_A_DURATION}, above 0",
        help="A file older than this is a failed source.",
        default="1m",
        metavar="DURATION",
    ),
    Setting(
        name="dcgm.timeout",
        parse=positive_duration,
        allowed=f"{_A_DURATION}, above 0",
        help="How long one page may take. A scrape that says its own timeout h waits at most max(h - 0.5s, h / 2).",
        default="5s",
        metavar="DURATION",
    ),
    Setting(
        name="dcgm.max-bytes",
        parse=positive_integer,
        allowed="a whole number of bytes above 0",
        help="A page larger than this, counted after decompression, is a failure.",
        default="6291456",
        metavar="BYTES",
    ),
    Setting(
        name="dcgm.http-config",
        parse=absolute_path,
        allowed="an absolute path",
        help="TLS and authorisation towards dcgm-exporter, in the form of Prometheus' http_config.",
        metavar="FILE",
    ),
    Setting(
        name="node-name",
        parse=not_empty,
        allowed="a name",
        help="The node's name in the mapping families. Default: the host name.",
        also_env="NODE_NAME",
        metavar="NAME",
    ),
    Setting(
        name="labels.names",
        parse=label_names,
        allowed="pod, legacy, or pod=X,namespace=Y,container=Z with three different label names"
        " that are not a device's own",
        help="The names of the added labels: pod (pod, namespace, container), legacy (pod_name, pod_namespace,"
        " container_name), or names of your own.",
        default="pod",
        metavar="NAMES",
    ),
    Setting(
        name="labels.conflict",
        parse=one_of("replace", "keep"),
        allowed="replace or keep",
        help="Whose word counts when a page already names an owner: the kubelet's (replace) or the page's (keep).",
        default="replace",
        metavar="replace|keep",
    ),
    Setting(
        name="labels.idle",
        parse=one_of("empty", "omit"),
        allowed="empty or omit",
        help="Samples without an owner get the three labels with empty values, or none. "
        "Default: empty with the names pod, omit with others.",
        metavar="empty|omit",
    ),
    Setting(
        name="labels.pod-uid",
        parse=one_of("off", "on"),
        allowed="on or off",
        help="Add the owner's UID as pod_uid.",
        default="off",
        metavar="on|off",
    ),
    Setting(
        name="labels.pod-labels",
        parse=regex,
        allowed="a regular expression",
        help="Add the owner's pod labels whose whole name matches one of these, as label_<name>.",
        repeatable=True,
        metavar="REGEX",
    ),
    Setting(
        name="labels.pod-labels-limit",
        parse=positive_integer,
        allowed="a whole number above 0",
        help="The most of those labels for one pod, in the order of their names; what is left out is counted.",
        default="32",
        metavar="NUMBER",
    ),
    Setting(
        name="pods.source",
        parse=one_of("auto", "kubelet", "api"),
        allowed="auto, kubelet or api",
        help="Where pods' labels and UIDs come from: the kubelet's Pods API, the Kubernetes API, or the first of the"
        " two that is there (auto). Used only if something needs them.",
        default="auto",
        metavar="auto|kubelet|api",
    ),
    Setting(
        name="kubelet.pods-socket",
        parse=socket_path,
        allowed=f"an absolute path of at most {MAX_SOCKET_PATH_BYTES} bytes",
        help="The socket of the kubelet's Pods API (Kubernetes 1.37 and later). Mount its directory, not the file.",
        default="/var/lib/kubelet/pods-api/pods-api.sock",
        metavar="PATH",
    ),
    Setting(
        name="kubernetes.url",
        parse=base_url,
        allowed="an http or https URL without a query",
        help="The Kubernetes API. Default: https:// with KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.",
        metavar="URL",
    ),
    Setting(
        name="kubernetes.token-file",
        parse=absolute_path,
        allowed="an absolute path",
        help="The token for the Kubernetes API; read for every request.",
        default="/var/run/secrets/kubernetes.io/serviceaccount/token",
        metavar="FILE",
    ),
    Setting(
        name="kubernetes.ca-file",
        parse=absolute_path,
        allowed="an absolute path",
        help="The certificate authority of the Kubernetes API; the system's where the file does not exist.",
        default="/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        metavar="FILE",
    ),
    Setting(
        name="sharing",
        parse=one_of("copy", "split", "device"),
        allowed="copy, split or device",
        help="A device with several owners: one copy of each sample per owner (copy), the same with what adds up"
        " divided among them (split), or the device's sample with no owner (device).",
        default="copy",
        metavar="copy|split|device",
    ),
    Setting(
        name="sharing.gauges",
        parse=family_name,
        allowed="a family's name",
        help="One more family that split divides as it stands, as it does power and memory.",
        repeatable=True,
        metavar="NAME",
    ),
    Setting(
        name="sharing.counters",
        parse=family_name,
        allowed="a family's name",
        help="One more family that split divides by its increases, as it does energy.",
        repeatable=True,
        metavar="NAME",
    ),
    Setting(
        name="workload.labels",
        parse=not_empty,
        allowed="a label of pods such as app.kubernetes.io/name",
        help="A pod's label that names its workload in /container/metrics; of several, the first that it has.",
        repeatable=True,
        metavar="LABEL",
    ),
    Setting(
        name="families.allow",
        parse=regex,
        allowed="a regular expression",
        help="Only families whose whole name matches one of these go out.",
        repeatable=True,
        metavar="REGEX",
    ),
    Setting(
        name="families.deny",
        parse=regex,
        allowed="a regular expression",
        help="Families whose whole name matches one of these do not go out.",
        repeatable=True,
        metavar="REGEX",
    ),
    Setting(
        name="log.level",
        parse=log_level,
        allowed="debug, info, warn or error",
        help="The least serious message that is logged.",
        default="info",
        also_env="LOG_LEVEL",
        metavar="LEVEL",
    ),
    Setting(
        name="log.format",
        parse=one_of("logfmt", "json"),
        allowed="logfmt or json",
        help="How messages are logged, on standard error.",
        default="logfmt",
        metavar="logfmt|json",
    ),
)
