"""The composition root of the node role: a `Config` becomes sources, rules and policies, and these a `Node`.

To add a source: make it in `_sources`, of its settings. Those of pages are made in page_sources.py, those that tell of
processes in process_sources.py.
"""

from collections.abc import Hashable, Mapping
from pathlib import Path

from exporter.accounting.ledger import Rules
from exporter.attribution.current import CurrentOwners
from exporter.config.named_files import NodeFiles
from exporter.config.node import Config
from exporter.config.parsers import LABEL_SETS
from exporter.exposition.join import Joiner
from exporter.model.snapshot import Facts
from exporter.node import process_sources
from exporter.node.accounting import Accounting, keep_in
from exporter.node.lasting import Lasting
from exporter.node.node import Node
from exporter.node.page_sources import discovery, page_sources
from exporter.node.pages import JoinedPages
from exporter.node.policies import device_rules, family_filter, label_policy, pod_label_policy
from exporter.node.sources import Sources
from exporter.node.state_file import check_place
from exporter.outputs.output import LOOK_AT_NODE, Need
from exporter.sources import driver
from exporter.sources.any_inventory import DriverSource, InventorySource, NoInventory
from exporter.sources.any_pods import NoPods, Pods
from exporter.sources.cdi import source as cdi
from exporter.sources.driver import DriverInventory
from exporter.sources.host.source import HostSource
from exporter.sources.inventories import Inventories
from exporter.sources.inventory_file import InventoryFile
from exporter.sources.kubelet.assignments import Kept, KubeletSource
from exporter.sources.kubelet.offers import KubeletOffers
from exporter.sources.kubelet.pods import PodsApi
from exporter.sources.kubernetes.api import KubernetesApi
from exporter.sources.kubernetes.pods import ApiPods
from exporter.sources.kubernetes.slices import ApiSlices, NoSlices, Slices
from exporter.sources.kubernetes.workloads import Workloads
from exporter.sources.late import Late
from exporter.sources.made import Made
from exporter.sources.source import OnHealth, absent, missing

_NO_PODS = absent("nothing that was asked for is made of pods", "ask for labels of pods with --labels.pod-labels")
_NO_SLICES = absent(
    "no claim has needed ResourceSlices so far, or nobody can be asked for them",
    "give access to the Kubernetes API, and do not turn --dra off",
)


def make_node(
    config: Config,
    files: NodeFiles,
    *,
    divides_counters: bool = True,
    keeps_accounts: bool = False,
    lasting: Lasting | None = None,
) -> Node:
    """A node. `lasting` is that of the node until now: what the new configuration does not change goes on.

    `divides_counters` is off where only one page will be made: a counter's increases need two. `keeps_accounts` is on
    where somebody has the node beat.

    Raises:
        ConfigError: the rules for devices, the inventory, or the place of the accounts' file cannot be used. `lasting`
            is then what it was.
    """
    keeps_accounts = keeps_accounts and config.accounting.is_on
    if keeps_accounts and config.accounting.state_file:
        check_place(config.accounting.state_file)
    rules = device_rules(config.devices, config.labels, files.rules)
    lasting = lasting or Lasting()
    claims = config.devices.follows_claims
    policy = label_policy(config.labels, config.sharing, rules, has_claims=claims, divides_counters=divides_counters)
    pod_labels = pod_label_policy(config.labels)
    owners = CurrentOwners(
        policy,
        pod_labels,
        rules.rules,
        lasting.book(config.sharing.mode),
        lasting.owners.pods_of_owners if lasting.owners else None,
        config.node.name,
    )
    asks_for = _asks_for(config)
    kept = lasting.kept(asks_for)
    sources = _sources(config, files, lasting, kept, needs_pods=pod_labels is not None or bool(config.dcgm.selectors))
    wanted = family_filter(config.families)
    pages = JoinedPages(
        make_joiner=lambda: Joiner(
            read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=wanted
        ),
        owners=owners,
        count_rejected=lasting.telemetry.count_rejected,
        # what NVIDIA's own exporter of these label names served
        adds_gpu_health=config.labels.names == LABEL_SETS["legacy"],
        is_kept=not config.dcgm.selectors and all(source.is_kept for source in sources.pages),
    )
    lasting.hand_over(made=sources.made, owners=owners, sharing=config.sharing.mode, kept=kept, kept_of=asks_for)
    if sources.probing is not None:
        sources.probing.follow()
    return Node(
        sources=sources,
        owners=owners,
        pages=pages,
        settings=_settings(config),
        name=config.node.name,
        lasting=lasting,
        accounting=_accounting(config, lasting, sources, owners) if keeps_accounts else None,
    )


def _accounting(config: Config, lasting: Lasting, sources: Sources, owners: CurrentOwners) -> Accounting:
    keep_in(config.accounting.state_file, lasting)
    return Accounting(
        lasting=lasting,
        rules=Rules(
            idle_below=config.accounting.idle_below,
            interval_ns=round(config.accounting.interval_seconds * 1e9),
            keep_ns=round(config.accounting.keep_seconds * 1e9),
        ),
        # what workloads are called by is a label of the accounts only where somebody has said it
        needs=LOOK_AT_NODE | {Need.WORKLOADS} if config.workloads.labels else LOOK_AT_NODE,
        asked_first=(sources.kubelet, sources.offers),
        owners=owners,
    )


def _settings(config: Config) -> Facts:
    return Facts(
        resources=config.devices.resources,
        incoming_wins=config.labels.incoming_wins,
        has_inventory_file=config.devices.inventory_file is not None,
        node_is_named=config.node.is_named,
        follows_claims=config.devices.follows_claims,
        exposes_processes=config.processes.is_exposed,
        idle_below=config.accounting.idle_below,
    )


def _asks_for(config: Config) -> Hashable:
    """Whose word about what the assignments in force are: another one's would not continue it."""
    return config.kubelet.socket, config.devices.resources, config.devices.follows_claims, config.node.name


def _sources(config: Config, files: NodeFiles, lasting: Lasting, kept: Kept, *, needs_pods: bool) -> Sources:
    """Every source of the node, there or not."""
    made = Made(lasting.telemetry.note_health, lasting.made)
    goes_on = lasting.made is not None
    pods: Late[Pods] = Late(lambda: _find_pods(config, made), _no_pods(config, made.on_health, are_missed=needs_pods))
    if goes_on and (needs_pods or lasting.wants_workloads):
        # otherwise begun with the first scrape: by then the kubelet may have made its socket
        pods.look()
    slices: Late[Slices] = Late(lambda: _find_slices(config, made), NoSlices(_NO_SLICES))
    if config.devices.dra == "on" or lasting.reads_slices:
        # with --dra auto looked for by the first claim that needs them
        slices.look()
    nvml = process_sources.nvml(config, made)
    return Sources(
        kubelet=made.get(
            KubeletSource,
            settings=config.kubelet,
            resources=config.devices.resources,
            claims=config.devices.follows_claims,
            node=config.node.name,
            kept=kept,
        ),
        offers=made.get(KubeletOffers, settings=config.kubelet, resources=config.devices.resources, kept=kept),
        pages=page_sources(config, files.http, lasting.instance, made, nvml),
        discovery=discovery(config, files.http, lasting.instance, made),
        nvml=nvml,
        measuring=process_sources.measuring(config, made, nvml),
        probing=process_sources.probing(config, made, lasting),
        inventory=_inventory(config, made, nvml),
        host=made.get(HostSource, root=config.root),
        pods=pods,
        needs_pods=needs_pods,
        slices=slices,
        workloads=made.get(
            _make_workloads, labels=config.workloads.labels, **(_api(config) if _may_ask_api(config) else {})
        ),
        made=made,
    )


def _inventory(config: Config, made: Made, nvml: DriverSource) -> Inventories:
    """All that know the node's GPUs, the best first: the file that is named, read, and what the machine says of itself.

    Raises:
        ConfigError: the file cannot be used.
    """
    path = config.devices.inventory_file
    file = made.get(InventoryFile, path=path) if path else None
    parts: list[InventorySource] = [file] if file else []
    if config.devices.inventory == "auto":
        parts += (
            made.get(DriverInventory, folder=_at(config, driver.FOLDER)),
            made.get(
                cdi.CdiInventory,
                folders=tuple(_at(config, folder) for folder in cdi.FOLDERS),
                minors=_at(config, cdi.MINORS),
            ),
        )
        if config.nvml.mode != "off":
            parts.append(nvml)
    return Inventories(parts or [NoInventory()], file)


def _at(config: Config, place: str) -> str:
    """Where a place of the machine is."""
    return f"{config.root.rstrip('/')}{place}"


def _find_pods(config: Config, made: Made) -> Pods | None:
    """The source of pods that --pods.source means; None where `auto` finds neither, for now."""
    auto = config.pods.source == "auto"
    if config.pods.source == "kubelet" or (auto and Path(config.pods.kubelet_socket).is_socket()):
        return made.get(PodsApi, socket=config.pods.kubelet_socket, max_stale_seconds=config.kubelet.max_stale_seconds)
    if config.kubernetes.url is not None and (not auto or Path(config.kubernetes.token_file).exists()):
        return made.get(_make_pods, node_name=config.node.name, **_api(config))
    return None


def _no_pods(config: Config, on_health: OnHealth, *, are_missed: bool) -> NoPods:
    """In place of the source of pods, until there is one."""
    why = missing(
        f"neither {config.pods.kubelet_socket} (Kubernetes 1.37 and later) nor a token for the Kubernetes"
        " API is there: labels of pods are left out",
        "mount that socket's folder, or a service account's token",
    )
    return NoPods(why if are_missed else _NO_PODS, on_health)


def _find_slices(config: Config, made: Made) -> Slices | None:
    """The source of ResourceSlices; None with --dra off, where there is no Kubernetes API, or for `auto` no token."""
    dra = config.devices.dra
    wanted = config.kubernetes.url if dra == "on" else dra == "auto" and _may_ask_api(config)
    return made.get(_make_slices, node_name=config.node.name, **_api(config)) if wanted else None


def _may_ask_api(config: Config) -> bool:
    """Whether there is a Kubernetes API, and a token for it; plain HTTP (`kubectl proxy`) needs none."""
    url = config.kubernetes.url
    return url is not None and (Path(config.kubernetes.token_file).exists() or not url.startswith("https:"))


def _api(config: Config) -> Mapping[str, Hashable]:
    return {
        "url": config.kubernetes.url,
        "token_file": config.kubernetes.token_file,
        "ca_file": config.kubernetes.ca_file,
    }


def _make_pods(*, node_name: str, on_health: OnHealth, **api: str) -> ApiPods:
    return ApiPods(api=KubernetesApi(**api), node_name=node_name, on_health=on_health)


def _make_slices(*, node_name: str, on_health: OnHealth, **api: str) -> ApiSlices:
    return ApiSlices(api=KubernetesApi(**api), node_name=node_name, on_health=on_health)


def _make_workloads(*, labels: tuple[str, ...], on_health: OnHealth, **api: str) -> Workloads:  # noqa: ARG001 - the log says what it lacks
    """Without a Kubernetes API, those that pods themselves tell."""
    return Workloads(api=KubernetesApi(**api) if api else None, labels=labels)
