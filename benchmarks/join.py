"""The join alone: the default page of 8 GPUs and 25 families, values validated."""

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

from benchmarks.table import Row, median_seconds, rounds
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


def rewrite_plainly(page: bytes, added: dict[bytes, bytes]) -> bytes:
    """What one would write by hand: line by line, nothing validated, no sample twice, no owner twice."""
    out = []
    for line in page.split(b"\n"):
        if not line or line.startswith(b"#"):
            out.append(line)
            continue
        start = line.find(b'UUID="') + 6
        extra = added.get(line[start : line.find(b'"', start)], b'pod="",namespace="",container=""')
        end = line.rfind(b"}")
        out.append(line[:end] + b"," + extra + line[end:])
    return b"\n".join(out)


def added_of(owners: Owners) -> dict[bytes, bytes]:
    """The labels that each device gains, by its UUID."""
    return {
        key.uuid.encode(): (
            f'pod="{held[0].owner.pod}",namespace="{held[0].owner.namespace}",container="{held[0].owner.container}"'
        ).encode()
        for key, held in owners.holders.items()
    }


def per_sample(samples: int, effort: float) -> float:
    """Seconds of a steady join for each sample of a page of so many."""
    lines = [
        f'DCGM_FI_DEV_F{number % 100}{{gpu="{number // 100}",UUID="GPU-{number // 100:08d}-1111-2222-3333-4444555566",'
        f'modelName="NVIDIA H100 80GB HBM3",Hostname="n"}} {number}\n'.encode()
        for number in range(samples)
    ]
    policy = LabelPolicy()
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    attribution, page = Attribution(Owners(), policy), b"".join(lines)
    joiner.join([page], attribution)
    return (
        median_seconds(lambda: joiner.join([page], attribution), rounds=rounds(max(15, 200_000 // samples), effort))
        / samples
    )


def run(effort: float) -> list[Row]:
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
    seconds = median_seconds(join, rounds=rounds(3000, effort))
    library = median_seconds(lambda: parse_and_render(pages[0].decode(), owners), rounds=rounds(60, effort))
    by_hand = added_of(owners)
    plainly = median_seconds(lambda: rewrite_plainly(pages[0], by_hand), rounds=rounds(2000, effort))
    each = {samples: per_sample(samples, effort) for samples in (200, 2000, 20_000, 100_000)}
    reference = median_seconds(
        lambda: reference_join(pages[:1], policy, attribution, lambda _: True), rounds=rounds(20, effort)
    )
    world.replace_all()
    states = [attribution, Attribution(owners_of(world), policy)]

    def join_for_other_pods() -> None:
        states.reverse()
        joiner.join(pages[:1], states[0])

    changed = median_seconds(join_for_other_pods, rounds=rounds(300, effort))
    lines, size = pages[0].count(b"\n"), len(pages[0])
    return [
        Row(f"join, {size / 1000:.0f} kB, {lines} lines", f"{seconds * 1e6:.0f} us", "", seconds),
        Row(
            "prometheus_client parse + render / join",
            f"{library / seconds:.0f} times ({library * 1e3:.1f} ms)",
            "at least 150 times",
            library / seconds,
        ),
        Row(
            "line-by-line rewrite without validation / join",
            f"{plainly / seconds:.1f} times ({plainly * 1e6:.0f} us)",
            "at least 2 times",
            plainly / seconds,
        ),
        Row(
            "join per sample, pages of 200, 2,000, 20,000, 100,000",
            ", ".join(f"{found * 1e9:.0f}" for found in each.values()) + " ns",
            "constant within 25 %",
            max(each.values()) / min(each.values()),
        ),
        Row(
            "reference implementation / join",
            f"{reference / seconds:.0f} times ({reference * 1e3:.1f} ms)",
            "",
            reference / seconds,
        ),
        Row(
            "join after all pods changed / join", f"{changed / seconds:.1f} times", "at most 4 times", changed / seconds
        ),
    ]
