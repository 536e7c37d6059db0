"""The composition root of the node role: `Config` → sources (build_sources.py), rules and policies → `Node`.

Tests: tests/node/test_sources.py.
"""

from collections.abc import Sequence
from functools import partial

from exporter.accounts.entries import MOST_ACCOUNTS
from exporter.accounts.ledger import Rules
from exporter.config.named_files import NodeFiles
from exporter.config.node_settings import Config
from exporter.config.page_settings import FamilySettings
from exporter.config.parsers import LABEL_SETS
from exporter.exposition.join import Joiner
from exporter.model.devices import NO_PLACES
from exporter.model.snapshot import LookContext
from exporter.node.accounting import Accounting, keep_in, say_if_nothing_is_here
from exporter.node.build_parts import make_evidence, make_parts
from exporter.node.build_sources import make_sources
from exporter.node.handover import NodeHandover
from exporter.node.joining import Joining
from exporter.node.kept_accounts import KeptAccounts
from exporter.node.kept_owners import KeptOwners
from exporter.node.node import Node
from exporter.node.node_evidence import NodeEvidence
from exporter.node.pages import JoinedPages
from exporter.node.part import Shows
from exporter.node.policies import (
    device_rules,
    family_filter,
    label_policy,
    pod_label_policy,
    renaming_to,
    vendor_of,
)
from exporter.node.shared_sources import Sources
from exporter.node.state_file import check_place
from exporter.outputs.output import LOOK_AT_NODE, Need
from exporter.ownership.allocators.allocator_table import ANNOTATIONS, annotations_of
from exporter.ownership.by_allocators import ByAllocators
from exporter.ownership.current import CurrentOwners, Tenures
from exporter.ownership.device_ids import DeviceRules
from exporter.ownership.labels import LabelPolicy, PodLabelPolicy
from exporter.ownership.unlisted import UnlistedHolders
from exporter.ownership.words import Words


def make_node(
    config: Config,
    files: NodeFiles,
    *,
    divides_counters: bool = True,
    keeps_accounts: bool = False,
    handover: NodeHandover | None = None,
) -> Node:
    """A node. `handover` comes from the previous node: all that the new configuration does not change continues.

    `divides_counters`: off if only one page is made, as increases need two. `keeps_accounts`: the caller makes the node
    beat; only then it pushes. Raises ConfigError: rules, inventory or accounts' file are no good; nothing is handed on.
    """
    accounts = keeps_accounts and config.accounting.is_on
    if accounts and config.accounting.state_file:
        check_place(config.accounting.state_file)
    rules = device_rules(config.devices, config.labels, files.rules)
    policy = _policy(config, rules, divides_counters=divides_counters)
    pod_labels = pod_label_policy(config.labels)
    handover = handover or NodeHandover()
    asks_for = _source_of_assignments(config)
    kept_owners = handover.the(KeptOwners)
    assignments = kept_owners.assignments(asks_for)
    needs_pods = pod_labels is not None or bool(config.dcgm.selectors)
    vendor = vendor_of(rules, config.labels)
    annotations = ANNOTATIONS | annotations_of(rules.allocators)
    sources = make_sources(
        config, files, handover, assignments, needs_pods=needs_pods, annotations=annotations, vendor=vendor
    )
    owners = _owners(config, kept_owners, policy, pod_labels, rules)
    evidence = make_evidence(config, handover, sources, owners)
    joining = _joining(config, handover, policy, owners, sources, evidence)
    machine, parts = make_parts(config, files, sources, owners, handover, may_push=keeps_accounts)
    handover.take(sources.cache)
    kept_owners.take(owners, config.sharing.mode, assignments, asks_for)
    if accounts:
        parts.append(_accounting(config, handover, sources, owners, machine))
    handover.telemetry.bound("accounts", MOST_ACCOUNTS, lambda: handover.the(KeptAccounts).ledger.rows)
    return Node(joining, (*machine, evidence, *parts), sources.cache, handover)


def _policy(config: Config, rules: DeviceRules, *, divides_counters: bool) -> LabelPolicy:
    has_claims = config.devices.follows_claims
    return label_policy(config.labels, config.sharing, rules, has_claims=has_claims, divides_counters=divides_counters)


def _source_of_assignments(config: Config) -> tuple[object, ...]:
    """The settings that identify the source of assignments: answers of another source would not continue them."""
    return config.kubelet.socket, config.devices.resources, config.devices.follows_claims, config.node.name


def _owners(
    config: Config,
    kept: KeptOwners,
    policy: LabelPolicy,
    pod_labels: PodLabelPolicy | None,
    rules: DeviceRules,
) -> CurrentOwners:
    """The owners, which continue those of the previous node."""
    before = kept.owners
    trusts_ids_of = "HAMi" if config.allocators.hami == "id" else ""
    # without any pods the user knows best
    doubts_ids = config.allocators.pods != "off"
    words = Words(rules.rules, rules.every_allocator, trusts_ids_of, doubts_ids=doubts_ids)
    # whoever may write pods can write such an annotation, in every cluster: so it counts only where the user says so
    without_kubelet = rules.every_allocator if config.allocators.pods == "on" else {}
    unlisted = UnlistedHolders(rules.rules, without_kubelet, config.allocators.reservation_namespaces)
    return CurrentOwners(
        policy,
        pod_labels,
        rules.rules,
        kept.book(config.sharing.mode),
        before.pods_of_owners if before else None,
        config.node.name,
        before.knowledge.places if before else NO_PLACES,
        before.requests if before else None,
        by_allocators=ByAllocators(words, unlisted, reads_pods=config.allocators.pods != "off"),
        gpus=before.gpus if before else frozenset(),
    )


def _joining(
    config: Config,
    handover: NodeHandover,
    policy: LabelPolicy,
    owners: CurrentOwners,
    sources: Sources,
    evidence: NodeEvidence,
) -> Joining:
    """The join, with the sources that it reads. What it remembers of owners outlives a reload."""
    joined = JoinedPages(
        make_joiner=partial(_joiner, policy, config.families),
        owners=owners,
        count_rejected=handover.telemetry.count_rejected,
        # NVIDIA's own exporter with these label names served this family
        adds_gpu_health=config.labels.names == LABEL_SETS["legacy"],
        is_kept=not config.dcgm.selectors and all(source.is_kept for source in sources.pages),
    )
    return Joining(
        node=config.node.name,
        sources=sources,
        owners=owners,
        evidence=evidence,
        joined=joined,
        settings=_settings(config),
        tenures=handover.the(Tenures),
        telemetry=handover.telemetry,
    )


def _joiner(policy: LabelPolicy, families: FamilySettings) -> Joiner:
    return Joiner(
        read_subject=policy.read_subject,
        is_owner_label=policy.is_owner_label,
        wanted=family_filter(families),
        nobodys=policy.nobodys,
        renaming=renaming_to(families.names),
    )


def _accounting(
    config: Config, handover: NodeHandover, sources: Sources, owners: CurrentOwners, machine: Sequence[Shows]
) -> Accounting:
    """The accounting of a node. It goes on with the ledger of `handover`, which the state file keeps."""
    settings = config.accounting
    kept = handover.the(KeptAccounts)
    keep_in(settings.state_file, kept, handover.telemetry.note_health)
    return Accounting(
        kept=kept,
        rules=Rules(
            idle_below=settings.idle_below,
            interval_ns=round(settings.interval_seconds * 1e9),
            keep_ns=round(settings.keep_seconds * 1e9),
        ),
        # accounts have workloads as labels only if the user names the label that names a workload
        needs=LOOK_AT_NODE | {Need.VERDICTS, *((Need.WORKLOADS,) if config.workloads.labels else ())},
        asked_first=(sources.kubelet, sources.allocatable),
        owners=owners,
        on_first_look=partial(say_if_nothing_is_here, machine),
        pods=sources.pods,
        kernel_log=sources.kernel_log,
    )


def _settings(config: Config) -> LookContext:
    return LookContext(
        resources=config.devices.resources,
        incoming_wins=config.labels.incoming_wins,
        names_owners=config.labels.owners,
        has_inventory_file=config.devices.inventory_file is not None,
        node_is_named=config.node.is_named,
        follows_claims=config.devices.follows_claims,
        exposes_processes=config.processes.is_exposed,
        idle_below=config.accounting.idle_below,
        misses_pods=config.allocators.pods == "on",
    )
