"""The join alone: the default page of 8 GPUs and 25 families, values validated."""

from collections.abc import Callable
from functools import partial
from itertools import chain, count, repeat
from statistics import median
from time import perf_counter

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

from benchmarks.table import Aim, Row, at_least, at_most, median_seconds, rounds
from exporter.exposition.check import MOST_LINES
from exporter.exposition.join import Joiner
from exporter.model.devices import Assignment, DeviceKey, Owners
from exporter.model.pods import Owner
from exporter.node.policies import renaming_to
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from exporter.simulator.dcgm import SimulatedDcgm
from exporter.simulator.machine import TICK_NS
from tests.support.owners import build_owners
from tests.support.reference_join import reference_join
from tests.support.simulated import World

LARGE = 6_720


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
    """The join, made in the obvious way with prometheus_client: parse, add labels, render."""
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
    """The join by hand in the simplest way: line by line, without validation, for devices with at most one owner."""
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
    """The labels that are added for each device, by its UUID."""
    return {
        key.uuid.encode(): (
            f'pod="{held[0].owner.pod}",namespace="{held[0].owner.namespace}",container="{held[0].owner.container}"'
        ).encode()
        for key, held in owners.holders.items()
    }


def lines_of(samples: int) -> list[bytes]:
    """The lines of a page with so many samples, 100 for each GPU."""
    return [
        f'DCGM_FI_DEV_F{number % 100}{{gpu="{number // 100}",UUID="GPU-{number // 100:08d}-1111-2222-3333-4444555566",'
        f'modelName="NVIDIA H100 80GB HBM3",Hostname="n"}} {number}\n'.encode()
        for number in range(samples)
    ]


def new_joiner(policy: LabelPolicy) -> Joiner:
    return Joiner(
        read_subject=policy.read_subject,
        is_owner_label=policy.is_owner_label,
        wanted=lambda _: True,
        nobodys=policy.nobodys,
    )


def per_sample(samples: int, effort: float) -> float:
    """The seconds of a steady join divided by the number of samples of its page."""
    policy = LabelPolicy()
    joiner = new_joiner(policy)
    attribution, page = Attribution(Owners(), policy), b"".join(lines_of(samples))
    joiner.join([page], attribution)
    return (
        median_seconds(lambda: joiner.join([page], attribution), rounds=rounds(max(15, 200_000 // samples), effort))
        / samples
    )


def changes(effort: float) -> list[Row]:
    """The cost of changes on a page of 112 MIG instances and 60 families, compared with a join of only new values."""
    policy = LabelPolicy()
    joiner = new_joiner(policy)
    lines = lines_of(LARGE)
    page, less = b"".join(lines), b"".join(lines[: LARGE // 2] + lines[LARGE // 2 + 1 :])
    pages, states = [page, less], [Attribution(Owners(), policy), Attribution(Owners(), policy)]

    def changed(what: list[bytes] | list[Attribution]) -> None:
        what.reverse()
        joiner.join(pages[:1], states[0])

    changed(pages)
    steady = median_seconds(lambda: joiner.join(pages[:1], states[0]), rounds=rounds(300, effort))
    owners = median_seconds(lambda: changed(states), rounds=rounds(300, effort))
    line = median_seconds(lambda: changed(pages), rounds=rounds(300, effort))
    cold = median_seconds(lambda: new_joiner(policy).join([page], states[0]), rounds=7)
    slices = longest_slice(new_joiner(policy), b"".join(lines_of(MOST_LINES)), states[0])
    return [
        Row(
            f"join after all pods changed / join, {LARGE} samples",
            f"{owners / steady:.1f} times ({owners * 1e3:.1f} / {steady * 1e3:.1f} ms)",
            at_most(2, "times"),
            owners / steady,
        ),
        Row(
            f"join after a line came or went / join, {LARGE} samples",
            f"{line / steady:.1f} times ({line * 1e3:.1f} ms; the first of all {cold * 1e3:.0f} ms)",
            at_most(10, "times"),
            line / steady,
        ),
        Row(
            f"longest time without a pause, first join of {MOST_LINES} lines",
            f"{slices * 1e3:.0f} ms",
            at_most(100, "ms", 1e-3),
            slices,
        ),
    ]


def longest_slice(joiner: Joiner, page: bytes, attribution: Attribution) -> float:
    """The seconds of a join's longest slice."""
    work = joiner.work_for([page], lambda _: attribution)
    longest, began = 0.0, perf_counter()
    while next(work, page) is None:
        longest, began = max(longest, perf_counter() - began), perf_counter()
    return max(longest, perf_counter() - began)


def run(effort: float) -> list[Row]:
    return [*usual_page(effort), *changes(effort), without_owners(effort), *other_names(effort)]


def without_owners(effort: float) -> Row:
    """A steady join of the usual page with `--labels.owners off`, in turns with one whose samples name owners."""
    world = World(gpus=8, seed=1, clock=count(step=TICK_NS).__next__)
    pages = [SimulatedDcgm(world).page().encode() for _ in range(2)]
    owners, times = owners_of(world), {True: list[float](), False: list[float]()}
    joins = {}
    for names_owners in times:
        policy = LabelPolicy(names_owners=names_owners)
        joins[names_owners] = partial(new_joiner(policy).join, attribute=Attribution(owners, policy))
    for number in range(rounds(3000, effort)):
        for names_owners, join in joins.items():
            began = perf_counter()
            join(pages[number % 2 :][:1])
            times[names_owners].append(perf_counter() - began)
    on, off = (median(times[names_owners]) for names_owners in (True, False))
    return Row(
        "join with --labels.owners off / join",
        f"{off / on:.2f} times ({off * 1e6:.0f} us)",
        at_most(1.1, "times"),
        off / on,
    )


def other_names(effort: float) -> list[Row]:
    """Steady joins of the usual page with `--families.names`. All pages differ, since new values cost more."""
    rows = []
    for came, settings in {"4.8": ("4.8", "4.9", "both"), "4.9": ("4.8",)}.items():
        world = World(gpus=8, seed=1, clock=count(step=10 * TICK_NS).__next__)
        dcgm, policy = SimulatedDcgm(world, generation=came), LabelPolicy()
        pages = [[dcgm.page().encode()] for _ in range(rounds(600, effort))]
        attribution = Attribution(owners_of(world), policy)
        seconds = {}
        for names in ("as-is", *settings):
            joiner = Joiner(
                read_subject=policy.read_subject,
                is_owner_label=policy.is_owner_label,
                wanted=lambda _: True,
                renaming=renaming_to(names),
            )
            bodies = chain.from_iterable(repeat(pages, 4))
            joiner.join(next(bodies), attribution)
            seconds[names] = median(seconds_of(joiner, body, attribution) for body in bodies)
        rows += [
            Row(
                f"join with --families.names {names} / as-is, page of {came}",
                f"{seconds[names] / seconds['as-is']:.2f} times ({seconds[names] * 1e6:.0f} us)",
                at_most(1.1, "times"),
                seconds[names] / seconds["as-is"],
            )
            for names in settings
        ]
    return rows


def seconds_of(joiner: Joiner, pages: list[bytes], attribution: Attribution) -> float:
    """The seconds of one join."""
    began = perf_counter()
    joiner.join(pages, attribution)
    return perf_counter() - began


def by_turns(joiner: Joiner, pages: list[bytes], states: list[Attribution]) -> Callable[[], None]:
    """A function that joins the same page with each call, each time for other pods."""

    def join() -> None:
        states.reverse()
        joiner.join(pages, states[0])

    return join


def usual_page(effort: float) -> list[Row]:
    # the clock goes on by a second with each reading, so that no two pages are the same
    world = World(gpus=8, seed=1, clock=count(step=TICK_NS).__next__)
    dcgm = SimulatedDcgm(world)
    # two pages with the same shape and different values, as with two scrapes in a row
    pages = [dcgm.page().encode(), dcgm.page().encode()]
    policy = LabelPolicy()
    owners = owners_of(world)
    attribution = Attribution(owners, policy)
    joiner = new_joiner(policy)

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
    changed = median_seconds(by_turns(joiner, pages[:1], states), rounds=rounds(300, effort)) / seconds
    lines, size = pages[0].count(b"\n"), len(pages[0])
    return [
        Row(f"join, {size / 1000:.0f} kB, {lines} lines", f"{seconds * 1e6:.0f} us", None, seconds),
        Row(
            "prometheus_client parse + render / join",
            f"{library / seconds:.0f} times ({library * 1e3:.1f} ms)",
            at_least(150, "times"),
            library / seconds,
        ),
        Row(
            "line-by-line rewrite without validation / join",
            f"{plainly / seconds:.1f} times ({plainly * 1e6:.0f} us)",
            at_least(2, "times"),
            plainly / seconds,
        ),
        Row(
            "join per sample, pages of 200, 2,000, 20,000, 100,000",
            ", ".join(f"{seconds * 1e9:.0f}" for seconds in each.values()) + " ns",
            Aim("constant within 25 %", 1.25),
            max(each.values()) / min(each.values()),
        ),
        Row(
            "reference implementation / join",
            f"{reference / seconds:.0f} times ({reference * 1e3:.1f} ms)",
            None,
            reference / seconds,
        ),
        Row("join after all pods changed / join", f"{changed:.1f} times", at_most(2, "times"), changed),
    ]
