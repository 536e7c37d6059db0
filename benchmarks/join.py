"""The join alone: the default page of 8 GPUs and 25 families, values validated."""

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

from benchmarks.table import Row, median_seconds
from exporter.attribution.labels import Attribution, LabelPolicy
from exporter.attribution.owners import build_owners
from exporter.exposition.join import Joiner
from exporter.model import Assignment, DeviceKey, Owner, Owners
from exporter.simulator.dcgm import SimulatedDcgm
from exporter.simulator.world import World
from tests.reference_join import reference_join


def owners_of(world: World) -> Owners:
    return build_owners(
        Assignment(
            owner=Owner(namespace=pod.namespace, pod=pod.name, container=container.name),
            resource=resource,
            device_id=device_id,
        )
        for pod in world.pods
        for container in pod.containers
        for resource, device_id in container.devices
    )


class _Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self.families = families

    def collect(self) -> list[Metric]:
        return self.families


def parse_and_render(page: str, owners: Owners) -> bytes:
    """What one would write with prometheus_client: parse, add labels, render."""
    families = list(text_string_to_metric_families(page))
    for family in families:
        family.samples = [
            sample._replace(
                labels={
                    **sample.labels,
                    **(
                        {
                            "pod": held[0].owner.pod,
                            "namespace": held[0].owner.namespace,
                            "container": held[0].owner.container,
                        }
                        if (held := owners.of(DeviceKey(uuid=sample.labels.get("UUID", ""))))
                        else {}
                    ),
                }
            )
            for sample in family.samples
        ]
    registry = CollectorRegistry()
    registry.register(_Families(families))
    return generate_latest(registry)


def run() -> list[Row]:
    world = World(gpus=8, seed=1)
    dcgm = SimulatedDcgm(world)
    # two pages with one shape and different values, as scrape follows scrape
    pages = [dcgm.page().encode(), dcgm.page().encode()]
    policy = LabelPolicy()
    owners = owners_of(world)
    attribution = Attribution(owners, policy)
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)

    def join() -> None:
        pages.reverse()
        joiner.join(pages[:1], attribution)

    join()
    seconds = median_seconds(join, rounds=3000)
    library = median_seconds(lambda: parse_and_render(pages[0].decode(), owners), rounds=60)
    reference = median_seconds(lambda: reference_join(pages[:1], policy, attribution, lambda _: True), rounds=20)
    world.replace_all()
    states = [attribution, Attribution(owners_of(world), policy)]

    def join_for_other_pods() -> None:
        states.reverse()
        joiner.join(pages[:1], states[0])

    changed = median_seconds(join_for_other_pods, rounds=300)
    lines, size = pages[0].count(b"\n"), len(pages[0])
    return [
        Row(f"join, {size / 1000:.0f} kB, {lines} lines", f"{seconds * 1e6:.0f} us", "", seconds),
        Row(
            "prometheus_client parse + render / join",
            f"{library / seconds:.0f} times ({library * 1e3:.1f} ms)",
            "at least 80 times",
            library / seconds,
        ),
        Row(
            "reference implementation / join",
            f"{reference / seconds:.0f} times ({reference * 1e3:.1f} ms)",
            "",
            reference / seconds,
        ),
        Row("join after all pods changed / join", f"{changed / seconds:.1f} times", "", changed / seconds),
    ]
