"""The rows of the report, from the folder of a run."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.hardware import judging
from tests.hardware.judging import MIB, OfProcess, Row, Series, fact, left_out
from tests.hardware.moments import ENDS_SECONDS, SETTLES_SECONDS, Moment, read_moments
from tests.hardware.pages import Sample
from tests.hardware.smi import FAMILIES, SmiGpu, of_driver

ENERGY, POWER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_POWER_USAGE"
ENGINE, SM, TENSOR, DRAM = (
    f"DCGM_FI_PROF_{name}" for name in ("GR_ENGINE_ACTIVE", "SM_ACTIVE", "PIPE_TENSOR_ACTIVE", "DRAM_ACTIVE")
)
RECEIVED, SENT = "DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_PROF_PCIE_TX_BYTES"
USED = "DCGM_FI_DEV_FB_USED"
# what rows of a share have of their own: docs/sharing.md
_MEASURED = frozenset({USED, "DCGM_FI_DEV_GPU_UTIL"})
LABELS = ("pci_bus_id", "modelName", "device", "DCGM_FI_DRIVER_VERSION")
# The first page waits for the first reading, and may come before the first assignments
STARTS_MOMENTS = 2


class Run:
    """A run as it lies in its folder."""

    def __init__(self, about: Mapping[str, Any], moments: Sequence[Moment]) -> None:
        self.about = about
        self.moments = moments
        self.uuid: str = about["uuid"]
        self.phases: Mapping[str, Mapping[str, Any]] = {phase["name"]: phase for phase in about["phases"]}
        self.ours = {uuid: _ours(moments, uuid) for uuid in self.uuids}

    @property
    def uuids(self) -> list[str]:
        """All GPUs that either side names; that which worked is the first."""
        of_pages = {sample.labels["UUID"] for moment in self.moments for sample in moment.samples if _is_of_gpu(sample)}
        of_smi = {uuid for moment in self.moments if moment.smi for uuid in moment.smi.gpus}
        return sorted(of_pages | of_smi | {self.uuid}, key=lambda uuid: (uuid != self.uuid, uuid))

    @property
    def has_load(self) -> bool:
        """Whether something worked on the GPU."""
        return not self.about["load"].startswith("none")

    @property
    def cut(self) -> set[str]:
        """GPUs that are cut into MIG instances: their rows are the instances', and nvidia-smi's values the GPU's."""
        return {
            sample.labels["UUID"]
            for moment in self.moments
            for sample in moment.samples
            if _is_of_gpu(sample) and sample.labels.get("GPU_I_ID")
        }

    def smi_of(self, uuid: str) -> list[tuple[float, SmiGpu]]:
        """What nvidia-smi said of a GPU."""
        return [
            (moment.smi_at, moment.smi.gpus[uuid])
            for moment in self.moments
            if moment.smi is not None and uuid in moment.smi.gpus
        ]

    def within(self, name: str) -> list[Moment]:
        """The moments of a phase in which everything has settled."""
        phase = self.phases.get(name)
        if phase is None:
            return []
        began = phase.get("works_from", phase["began"]) + SETTLES_SECONDS
        ended = phase.get("works_until", phase["ended"]) - ENDS_SECONDS
        return [moment for moment in self.moments if began <= moment.at <= ended]

    def series_in(self, name: str, family: str) -> Series:
        """A family of the GPU that worked, in a phase."""
        times = {moment.at for moment in self.within(name)}
        return [(at, value) for at, value in self.ours.get(self.uuid, {}).get(family, ()) if at in times]


def _is_of_gpu(sample: Sample) -> bool:
    return "UUID" in sample.labels and sample.family.startswith("DCGM_")


def _ours(moments: Iterable[Moment], uuid: str) -> Mapping[str, Series]:
    """The families of a GPU over time, each value once: while it is shared, the rows of its pods are copies.

    Only what is measured for each pod is then the pod's value, and no GPU's.
    """
    series: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for moment in moments:
        samples = [sample for sample in moment.samples if sample.labels.get("UUID") == uuid]
        is_shared = any(sample.labels.get("gpu_shared") == "true" for sample in samples)
        left_out_now = _MEASURED if is_shared else frozenset[str]()
        values = {sample.family: sample.value for sample in samples if sample.family not in left_out_now}
        for family, value in values.items():
            series[family].append((moment.at, value))
    return series


def judge(folder: Path) -> list[Row]:
    """All rows of a run. Raises OSError, ValueError: the folder holds none."""
    return judged(Run(json.loads((folder / "about.json").read_text()), read_moments(folder)))


def judged(run: Run) -> list[Row]:
    """All rows."""
    parts: Sequence[Callable[[Run], Iterator[Row]]] = (
        _moments,
        _labels,
        _beside_smi,
        _other_gpus,
        _energy,
        _activity,
        _copies,
        _processes,
        _owners,
        _places,
        _probe,
        _machine,
    )
    return [row for part in parts for row in part(run)]


def driver_of(folder: Path) -> str:
    """The driver's version, by nvidia-smi."""
    return of_driver(moment.smi for moment in read_moments(folder) if moment.smi is not None)


def _moments(run: Run) -> Iterator[Row]:
    later = run.moments[STARTS_MOMENTS:]
    yield judging.equal("seconds with a page", sum(bool(moment.samples) for moment in later), len(later))
    yield judging.equal("seconds with nvidia-smi", sum(moment.smi is not None for moment in later), len(later))
    if run.about["left_behind"]:
        yield judging.equal("cgroups that were left behind", " ".join(run.about["left_behind"]), "")
    for name, phase in run.phases.items():
        if "failed" in phase:
            yield judging.equal(f"load, {name}", phase["failed"], "works")


def _labels(run: Run) -> Iterator[Row]:
    seen = [sample for moment in run.moments for sample in moment.samples if sample.labels.get("UUID") == run.uuid]
    theirs = [gpu for _, gpu in run.smi_of(run.uuid)]
    for name in LABELS:
        yield judging.same_text(
            f"label {name}", (sample.labels.get(name, "") for sample in seen), (gpu.labels[name] for gpu in theirs)
        )


def _beside_smi(run: Run) -> Iterator[Row]:
    yield from _compared(run, run.uuid)
    alone = sorted(run.ours.get(run.uuid, {}).keys() - FAMILIES.keys())
    alone = [family for family in alone if family.startswith("DCGM_")]
    yield fact("families that nvidia-smi has not", str(len(alone)), " ".join(alone))


def _compared(run: Run, uuid: str) -> Iterator[Row]:
    if uuid in run.cut:
        yield left_out(f"values of {uuid}", "it is cut into MIG instances, whose values nvidia-smi does not say")
        return
    smi = run.smi_of(uuid)
    for family in FAMILIES:
        theirs = [(at, gpu.values[family]) for at, gpu in smi if family in gpu.values]
        ours = run.ours[uuid].get(family, [])
        if ours or theirs:
            yield judging.compared(family, ours, theirs)


def _other_gpus(run: Run) -> Iterator[Row]:
    others = run.uuids[1:]
    if not others:
        return
    rows = [(uuid, row) for uuid in others for row in _compared(run, uuid)]
    yield judging.equal(
        f"values of the other {len(others)} GPUs that agree",
        sum(row.verdict != "fails" for _, row in rows),
        len(rows),
        " ".join(f"{uuid}: {row.what} {row.ours} {row.theirs}" for uuid, row in rows if row.verdict == "fails")[:400],
    )


def _energy(run: Run) -> Iterator[Row]:
    if not run.has_load:
        yield left_out("energy counter beside the integral of power", "no load")
        return
    ours = run.ours[run.uuid]
    times = [moment.at for moment in run.moments if moment.samples]
    both = [at for at in times if all(any(at == then for then, _ in ours.get(name, ())) for name in (ENERGY, POWER))]
    if not both:
        yield left_out("energy counter beside the integral of power", "the GPU has no energy counter")
        return
    yield judging.energy(*(judging.within(ours[name], both[0], both[-1]) for name in (ENERGY, POWER)))


def _activity(run: Run) -> Iterator[Row]:
    if not run.ours[run.uuid].get(SM):
        yield left_out("activity (GPM)", "NVML says none: it has GPM from Hopper on")
        return
    # a display, or the driver's own housekeeping, may take a moment
    for name, family in (("graphics engine", ENGINE), ("SM", SM), ("tensor cores", TENSOR), ("DRAM", DRAM)):
        yield judging.mean_between(f"{name} active, idle", run.series_in("idle", family), 0, 0.02, why="nothing works")
    if not run.has_load:
        return
    products = "matrix products"
    # the last wave of blocks of each product leaves some SMs without work
    yield judging.mean_between("SM active", run.series_in("matmul", SM), 0.8, 1, why=products)
    yield judging.mean_between("graphics engine active", run.series_in("matmul", ENGINE), 0.9, 1, why=products)
    # from a simple program of WMMA (some 10 %) to cuBLAS on Hopper (up to 90 %)
    yield judging.mean_between(
        "tensor cores active", run.series_in("matmul", TENSOR), 0.02, 1, why=f"{products} of fp16"
    )
    yield judging.mean_between("DRAM active", run.series_in("matmul", DRAM), 0.005, 1, why=products)


def _copies(run: Run) -> Iterator[Row]:
    if not run.about["copied"]:
        yield left_out("bytes over PCIe", "no load copied")
        return
    for place, family, name in ((1, RECEIVED, "to the GPU"), (2, SENT, "from the GPU")):
        did = [(float(line[0]), float(line[place])) for line in run.about["copied"]]
        rate = [(at, value) for at, value in run.ours[run.uuid].get(family, ()) if did[0][0] <= at <= did[-1][0]]
        yield judging.copied(f"bytes copied {name}", rate, [pair for pair in did if pair[1]] and did)


def _processes(run: Run) -> Iterator[Row]:
    moments = run.within("shared")
    processes = run.phases.get("shared", {}).get("processes", [])
    if not processes:
        yield left_out("memory of processes", "no load")
        return
    if moments and all(moment.no_processes for moment in moments):
        yield left_out("memory of processes", moments[-1].no_processes)
        return
    for process in processes:
        pid = process["pid"]
        ours = [row["memory_bytes"] for moment in moments for row in _rows_of(moment, run.uuid, pid)]
        theirs = [moment.smi.gpus[run.uuid].memory_of.get(pid) for moment in moments if moment.smi]
        their_mib = next((memory for memory in reversed(theirs) if memory is not None), None)
        yield from judging.memory_of(
            OfProcess(
                name=process["pod"],
                pid=pid,
                allocated=process["allocated"],
                ours=ours[-1] if ours else None,
                theirs=None if their_mib is None else round(their_mib * MIB),
            )
        )
    yield from _times(moments, processes, run.uuid)


def _rows_of(moment: Moment, uuid: str, pid: int) -> list[Mapping[str, Any]]:
    return [row for row in moment.processes if row["pid"] == pid and row["device_uuid"] == uuid]


def _times(moments: Sequence[Moment], processes: Sequence[Mapping[str, Any]], uuid: str) -> Iterator[Row]:
    """The SM time of each process, and of all: the driver gives each its turn, of which there is one at a time."""
    sums: defaultdict[float, float] = defaultdict(float)
    for process in processes:
        ratios = [
            (moment.at, float(row["sm_ratio"]))
            for moment in moments
            for row in _rows_of(moment, uuid, process["pid"])
            if row["sm_ratio"] is not None
        ]
        for at, ratio in ratios:
            sums[at] += ratio
        yield judging.mean_between(f"SM time of {process['pod']}", ratios, 0.05, 1, why="both work all the time")
    yield judging.mean_between("SM time of both", sorted(sums.items()), 0.5, 1.1, why="both work all the time")


def _owners(run: Run) -> Iterator[Row]:
    for name, phase in run.phases.items():
        expected = frozenset(phase["pods"])
        seen = (frozenset(_pods(moment, run.uuid)) for moment in run.within(name) if moment.samples)
        yield judging.owners(f"owners of the GPU, {name}", seen, expected)
    others = set(run.uuids) - {run.uuid}
    if others:
        pods = (frozenset(pod for uuid in others for pod in _pods(moment, uuid)) for moment in run.moments)
        yield judging.owners("owners of the other GPUs", pods, frozenset())


def _pods(moment: Moment, uuid: str) -> set[str]:
    """Those that rows of the GPU name; one that only uses it holds nothing."""
    return {
        sample.pod
        for sample in moment.samples
        if sample.labels.get("UUID") == uuid and sample.pod and sample.labels.get("holds") != "false"
    }


def _places(run: Run) -> Iterator[Row]:
    """The containers of processes by their cgroups, and what each pod's rows say of its own use."""
    if run.about["cgroups"] != "made":
        yield left_out("containers of processes", f"without cgroups: {run.about['cgroups']}")
        return
    moments = run.within("shared")
    for process in run.phases.get("shared", {}).get("processes", []):
        pod = process["pod"]
        rows = [row for moment in moments for row in _rows_of(moment, run.uuid, process["pid"])]
        named = ((row["container"] or {}).get("pod", "") for row in rows)
        seen = (frozenset({name} if name else ()) for name in named)
        yield judging.owners(f"container of the process of {pod}, by its cgroup", seen, frozenset({pod}))
        used = [
            sample.value * MIB
            for moment in moments
            for sample in moment.samples
            if sample.family == USED and sample.pod == pod
        ]
        if used and rows:
            of_process = OfProcess(
                name=f"the rows of {pod}",
                pid=process["pid"],
                allocated=process["allocated"],
                ours=round(used[-1]),
                theirs=rows[-1]["memory_bytes"],
            )
            yield from judging.memory_of(of_process)


def _probe(run: Run) -> Iterator[Row]:
    probe = run.about["probe"]
    if "counted" not in probe:
        yield left_out("launches that the CUDA probe counts", str(probe.get("why_not", "not tried")))
        return
    yield judging.equal("launches that the CUDA probe counts", probe["counted"], probe["launches"])


def _machine(run: Run) -> Iterator[Row]:
    cost = run.about["cost"]
    seconds = run.about["ended"] - run.about["began"]
    if "serve" in cost:
        serve = cost["serve"]
        share = serve["cpu_seconds"] / seconds
        yield fact("RSS of serve", f"{serve['rss_mib']} MiB")
        yield fact("CPU of serve, asked for four paths a second", f"{share:.1%} of a core", f"in {seconds:.0f} s")
    reading = cost.get("reading", {})
    if "median_ms" in reading:
        says = f"{reading['median_ms']} ms, of CPU {reading['cpu_ms']} ms"
        note = f"first {reading['first_ms']} ms, most {reading['most_ms']} ms, {reading['page_bytes']} bytes of page"
        yield fact("a reading of NVML", says, note)
    yield fact("/dev/kmsg", run.about["kernel_log"] or "can be read")
    yield fact("bundle", run.about["bundle"] or "not tried")
