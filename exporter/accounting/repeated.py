"""What a page repeats of a whole GPU on the rows of its MIG instances, in parts of the instances (`--sharing split`).

dcgm-exporter writes the GPU's power, energy and bytes over PCIe and NVLink on the row of each instance. Each instance
gets a part, by what it did (instances.py), and the parts add up to the GPU's value exactly. Rows that differ are the
instances' own values, and stay as they are. What becomes of a part among the owners of the instance is sharing.py's.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.accounting.decimals import NOTHING, Amount, divisible, growth, is_amount, read_amount, write_amount
from exporter.accounting.fields import Additive
from exporter.accounting.instances import apportion, compute_slices, is_repeated, weights
from exporter.model.pages import Reading
from exporter.model.slices import Work

# A GPU's counter is forgotten after this many others. 16 GPUs with 10 such fields have 160.
MOST_COUNTERS = 2_048
_READINGS_A_SLICE = 4_000

# The family, and the GPU by its UUID.
OfGpu = tuple[bytes, str]


@dataclass(slots=True)
class CutGpu:
    """A GPU that is cut into MIG instances, as a page shows it.

    Compute slices and activity (0 to 1, where known) are by instance (GPU_I_ID), the instances' rows are by family.
    """

    slices: dict[str, int] = field(default_factory=dict)
    activity: dict[str, float] = field(default_factory=dict)
    rows: dict[bytes, list[Reading]] = field(default_factory=dict)
    _weights: dict[tuple[str, ...], Sequence[int]] = field(default_factory=dict)

    def parts(self, units: int, instances: Iterable[str]) -> Mapping[str, int]:
        """`units` in parts of these instances, each of them named once, that add up to it."""
        among = tuple(instances)
        by = self._weights.get(among)
        if by is None:
            slices, activities = [self.slices[of] for of in among], [self.activity.get(of) for of in among]
            by = self._weights[among] = weights(slices, activities)
        sign = -1 if units < 0 else 1
        return {of: sign * part for of, part in zip(among, apportion(abs(units), by), strict=True)}


ShareCounter = Callable[[OfGpu, Sequence[Reading], CutGpu], None]


def share_page(
    readings: Iterable[Reading], additive: Mapping[bytes, Additive], share_counter: ShareCounter
) -> Work[Mapping[bytes, bytes]]:
    """The parts of gauges, by series; a series that is not there keeps its value. Counters go to `share_counter`.

    It yields where other tasks may run, and returns the parts. `additive` has the families that a page may repeat;
    other readings are the instances' activity. Samples that are of no instance are left alone: what `dcgm-exporter -d
    g,i` writes of the GPU itself stays the GPU's row.
    """
    parts: dict[bytes, bytes] = {}
    gpus = yield from _cut_gpus(readings, additive)
    for uuid, gpu in gpus.items():
        for family, rows in gpu.rows.items():
            amounts = {text for text in {value for _, value in rows} if is_amount(text)}
            divisible = [row for row in rows if row[1] in amounts]
            if not divisible:
                continue
            if additive[family] is Additive.COUNTER:
                share_counter((family, uuid), divisible, gpu)
            elif are_repeated(divisible):
                parts.update(_parts_of_gauge(divisible, gpu))
        yield
    return parts


def _cut_gpus(readings: Iterable[Reading], additive: Mapping[bytes, Additive]) -> Work[Mapping[str, CutGpu]]:
    gpus: dict[str, CutGpu] = {}
    for number, reading in enumerate(readings, start=1):
        if not number % _READINGS_A_SLICE:
            yield
        series, value = reading
        family, subject = series.name, series.subject
        of, uuid = subject.instance, subject.gpu
        if not of or not uuid:
            continue
        gpu = gpus.get(uuid)
        if gpu is None:
            gpu = gpus[uuid] = CutGpu()
        if of not in gpu.slices:
            gpu.slices[of] = compute_slices(subject.profile)
        if family not in additive:
            if of not in gpu.activity and is_amount(value):
                gpu.activity[of] = float(value)
        elif family in gpu.rows:
            gpu.rows[family].append(reading)
        else:
            gpu.rows[family] = [reading]
    return gpus


def are_repeated(rows: Sequence[Reading]) -> bool:
    """Whether these rows of one field show the GPU's value."""
    texts = {value for _, value in rows}
    return len(texts) == 1 or is_repeated([float(text) for text in texts])


def _parts_of_gauge(rows: Sequence[Reading], gpu: CutGpu) -> Mapping[bytes, bytes]:
    """The parts of the first row's value, at the precision that was printed. A lone instance keeps its text."""
    instances = dict.fromkeys(series.subject.instance for series, _ in rows)
    if len(instances) == 1:
        return {}
    units, places = divisible(read_amount(rows[0][1]))
    texts = {of: write_amount(Amount(part, places)) for of, part in gpu.parts(units, instances).items()}
    return {series.identity: texts[series.subject.instance] for series, _ in rows}


@dataclass(slots=True)
class _Counter:
    """A counter of a GPU: its value, the series that showed it, and the number of the read that last moved it.

    `is_repeated` says whether the rows showed the GPU's value; None as long as all of them have shown 0.
    """

    value: Amount
    series: frozenset[bytes]
    is_repeated: bool | None
    read: int


class GpuCounters:
    """The GPUs' counters that instances' rows repeat: by how much each of these rows grows with a read."""

    def __init__(self) -> None:
        self._counters: OrderedDict[OfGpu, _Counter] = OrderedDict()

    def __len__(self) -> int:
        """How many are remembered; at most MOST_COUNTERS."""
        return len(self._counters)

    def grow(self, of: OfGpu, rows: Sequence[Reading], gpu: CutGpu, read: int) -> Mapping[bytes, Amount]:
        """What each series grows by, once a read; a series that is not there shows its instance's own value.

        The growth is divided among the instances that were there at the last read, too. Where rows that differed begin
        to repeat one value, the old and the new do not compare: nothing grows.
        """
        value = read_amount(max((text for _, text in rows), key=float))
        series = frozenset(row.identity for row, _ in rows)
        known = self._counters.get(of)
        before = known.is_repeated if known else None
        # what is 0 everywhere is both
        repeated = are_repeated(rows) if value.units else before
        if known is None:
            self._counters[of] = _Counter(value, series, repeated, read)
            while len(self._counters) > MOST_COUNTERS:
                self._counters.popitem(last=False)
            return dict.fromkeys(series, NOTHING) if repeated else {}
        self._counters.move_to_end(of)
        if known.read == read:
            return {}
        instance_of = {row.identity: row.subject.instance for row, _ in rows if row.identity in known.series}
        known.series, known.is_repeated, known.read = series, repeated, read
        grows = dict.fromkeys(series, NOTHING)
        if not repeated or before is False:
            known.value = value
            return grows if repeated else {}
        # the rows are read a moment apart, and a new cut shows other ones: a small fall is no reset
        grown = growth(known.value, value, may_lag=True)
        if grown is None:
            return grows
        known.value = value
        if grown.units and instance_of:
            parts = gpu.parts(grown.units, dict.fromkeys(instance_of.values()))
            grows.update((row, Amount(parts[instance], grown.places)) for row, instance in instance_of.items())
        return grows
