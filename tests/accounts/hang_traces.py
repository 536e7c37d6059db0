"""Made traces of jobs on GPUs, of eight kinds, and what the watch over hangs says of them.

    python -m tests.accounts.hang_traces [--seed N] [--of-each N]

prints precision and recall. The generator knows nothing of the detector's thresholds. It follows what was measured of
real GPUs; what nobody has told is marked as assumed:

- H100, idle without a process: 69 to 71 W of 700 (NVIDIA/nccl issue 1967); idle with one: 129 to 145 W (NVIDIA/nccl
  issue 1550, wilicc/gpu-burn issue 114). Hung in a collective: 100 W (NVIDIA-NeMo/Speech issue 9291), 152 W
  (NVIDIA/nccl issue 1550); training: 500 to 690 W (the former).
- V100 with a kernel that polls: 66 W, and 53 W without (zai-org/GLM-130B issue 32). So it takes some 4 to 8 % of a
  card's limit. Hung, a model not told: 70 W (NVIDIA/nccl issue 968).
- A100, idle with a process: 70 to 77 W of 400 (pytorch/pytorch issue 118369).
- GB200 in training: 98.55 % busy, 984 W, tensor 0.324, DRAM 0.241 (marin-community/marin issue 7344). Its idle power,
  and that of L4, are assumed.
- H200, decoding: 137 to 300 W of 700 (arXiv 2605.11999).
- A hung server of another card: 96 % busy at 13 W (AEON-7/Qwen3.6-27B-AEON-Ultimate-Uncensored-DFlash issue 10).

Some traces of every kind cannot be told from a hang, or from none; they are in the figures.
"""

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.accounts.hang_signs import DeviceSigns
from exporter.accounts.power_levels import PowersOfModels
from exporter.accounts.watched_jobs import Job, JobDevice, WatchedJobs, jobs_of
from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner

LOOK_SECONDS = 15
TUNED_WITH = 1
HELD_OUT = 26  # a seed with which nothing was tuned
OF_EACH = 50
_NS = 1_000_000_000
_MINUTE = 60 // LOOK_SECONDS  # in looks


class Card(NamedTuple):
    """Powers of a model in W: without a process, with one, by how much a kernel that polls adds, at work, and limit."""

    name: str
    bare: float
    idle: tuple[float, float]
    polls: tuple[float, float]
    works: tuple[float, float]
    limit: float
    gpus: Sequence[int]
    is_mig: bool = False


CARDS = (
    Card("A100-SXM4-80GB", 60, (68, 80), (14, 34), (290, 390), 400, (2, 4, 8)),
    Card("H100-SXM", 70, (100, 145), (12, 45), (480, 690), 700, (2, 4, 8)),
    Card("GB200", 170, (190, 240), (40, 110), (850, 1080), 1200, (4,)),
    Card("L4", 13, (27, 32), (3, 7), (58, 72), 72, (1, 2)),
    Card("H100 MIG 3g.40gb", 70, (100, 145), (12, 45), (480, 690), 700, (1,), is_mig=True),
)
# the pages: this project's counters file, dcgm-exporter's default one, and one without profiling
PAGES = ("whole", "whole", "default", "default", "driver")
PAGE_WORDS = {
    "whole": "the counters file of this project",
    "default": "dcgm-exporter's default counters",
    "driver": "no profiling: utilisation, memory's utilisation and power",
}


@dataclass
class Load:
    """What all GPUs of a job do at a look: parts of 1, and GB/s. `power` is the part of the way from idle to work."""

    active: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    pipes: float = 0.0
    pcie: float = 0.0
    nvlink: float = 0.0
    power: float = 0.0
    polls: bool = False


@dataclass
class Trace:
    """A node with one job, look by look, and for each look the reason that would be right ("" for none)."""

    kind: str
    card: Card
    page: str
    looks: list[Sequence[DeviceSigns]] = field(default_factory=list)
    truth: list[str] = field(default_factory=list)
    history: list[Sequence[DeviceSigns]] = field(default_factory=list)
    looks_alike: bool = False  # made so that its page is that of a job that hangs, or starves


class _Maker:
    """Makes the looks of one trace."""

    def __init__(self, kind: str, dice: random.Random) -> None:
        self.dice = dice
        card = dice.choice(CARDS)
        page = "whole" if card.is_mig else dice.choice(PAGES)
        self.trace = Trace(kind, card, page)
        self.count = dice.choice(card.gpus)
        self.idle = [dice.uniform(*card.idle) for _ in range(self.count)]
        self.polls = [dice.uniform(*card.polls) for _ in range(self.count)]
        self.works = [dice.uniform(*card.works) for _ in range(self.count)]
        self.neighbour = dice.uniform(0.1, 0.9)  # of a MIG instance: the power is the whole GPU's
        self.reads_every = dice.choice((1, 2))  # dcgm-exporter reads every 15 or 30 s
        self.late = 0.0  # power lags behind, by what a board averages over

    def of(self, low: float, high: float) -> float:
        return self.dice.uniform(low, high)

    def minutes(self, low: float, high: float) -> int:
        """A number of looks."""
        return round(self.of(low, high) * _MINUTE)

    def look(self, load: Load, truth: str = "", *, but: int = -1) -> None:
        """A look with this load on every GPU; GPU `but` has no kernel at all."""
        trace = self.trace
        trace.truth.append(truth)
        if len(trace.looks) % self.reads_every and trace.looks:
            trace.looks.append(trace.looks[-1])
            return
        trace.looks.append([self._signs(gpu, Load() if gpu == but else load) for gpu in range(self.count)])

    def _signs(self, gpu: int, load: Load) -> DeviceSigns:
        noisy = self._noisy
        power = self.idle[gpu] + load.power * (self.works[gpu] - self.idle[gpu])
        power += self.polls[gpu] if load.polls else 0.0
        if self.trace.card.is_mig:
            self.neighbour = min(1.0, max(0.0, self.neighbour + self.of(-0.1, 0.1)))
            power += self.neighbour * 400
        active = min(1.0, noisy(load.active))
        if load.polls:
            active = 1.0 if self.dice.random() < 0.97 else self.of(0.985, 1.0)
        signs = DeviceSigns(
            gr_engine=active,
            utilization=self._sampled(active, load),
            power=round(min(self.trace.card.limit, power * self.of(0.985, 1.015)) + self.of(-0.4, 0.4), 3),
            tensor=noisy(load.tensor),
            dram=noisy(load.dram) + self.of(0, 0.0008),
            copies=float(round(noisy(load.dram) * 100)) / 100,
            pipes=noisy(load.pipes) + self.of(0, 0.002),
            pcie=noisy(load.pcie) * 1e9 + self.of(1e5, 3e7),
            nvlink=noisy(load.nvlink) * 1e9,
        )
        return self._on_page(signs)

    def _noisy(self, value: float) -> float:
        return max(0.0, value * self.dice.gauss(1.0, 0.06))

    def _sampled(self, active: float, load: Load) -> float:
        """The driver's utilisation is that of a moment: of bursts it sees one or none."""
        if load.polls or active > 0.9:
            return round(active, 2)
        return 1.0 if self.dice.random() < active * 0.6 else round(active * self.of(0.2, 1.0), 2)

    def _on_page(self, signs: DeviceSigns) -> DeviceSigns:
        page = self.trace.page
        if self.trace.card.is_mig:
            signs.utilization = signs.copies = signs.nvlink = None
        if page == "default":
            signs.pipes = signs.nvlink = None
        if page == "driver":
            signs.gr_engine = signs.tensor = signs.dram = signs.pipes = signs.pcie = signs.nvlink = None
        return signs

    # --- what jobs do ---------------------------------------------------------------------------------------------

    def before(self) -> None:
        """What the node did before: mostly it rested and worked, sometimes the exporter has just started."""
        trace = self.trace
        if self.dice.random() < 0.2:
            return
        rest = DeviceSigns(gr_engine=0.0, utilization=0.0, tensor=0.0, dram=0.0, copies=0.0, pipes=0.0, pcie=1e5)
        for _ in range(self.minutes(5, 15)):
            looks = []
            for _ in range(self.count):
                power = trace.card.bare * self.of(0.97, 1.03)
                signs = DeviceSigns(**{name: getattr(rest, name) for name in rest.__slots__})
                signs.power = power
                looks.append(self._on_page(signs))
            trace.history.append(looks)
        self.train(self.minutes(5, 20), at_work=self.training())
        trace.history += trace.looks
        trace.looks.clear()
        trace.truth.clear()

    def training(self) -> Load:
        """A training's load: dense, or of a small model that waits for launches."""
        if self.dice.random() < 0.15:
            tensor, dram = self.of(0.02, 0.08), self.of(0.15, 0.4)
            return Load(self.of(0.85, 0.97), tensor, dram, self.of(0.05, 0.2), 0.3, 1.0, self.of(0.25, 0.5))
        tensor = self.of(0.25, 0.6)
        dram = tensor * self.of(0.5, 1.4)
        return Load(self.of(0.9, 0.99), tensor, dram, self.of(0.05, 0.2), 0.4, self.of(5, 120), self.of(0.75, 1.0))

    def train(self, looks: int, at_work: Load) -> None:
        """Steps, with a dip now and then: a log, a small checkpoint, a slow batch."""
        for _ in range(looks):
            part = self.of(0.3, 0.8) if self.dice.random() < 0.03 else 1.0
            self.look(scaled(at_work, part))

    def start(self) -> None:
        """Processes start and read weights."""
        for _ in range(self.minutes(0.5, 3)):
            self.look(Load(active=self.of(0, 0.05), pcie=self.of(0, 12), dram=0.01, power=0.01))


def scaled(load: Load, part: float) -> Load:
    return Load(
        load.active * part,
        load.tensor * part,
        load.dram * part,
        load.pipes * part,
        load.pcie * part,
        load.nvlink * part,
        load.power * part,
    )


_POLLING = Load(active=1.0, dram=0.0015, pipes=0.006, polls=True)


def _hang(make: _Maker) -> None:
    """A collective waits for ever. In one of ten, a GPU of this node is the one that is missing."""
    make.start()
    if make.dice.random() < 0.85:  # else the first collective never ends
        make.train(make.minutes(5, 25), make.training())
    but = make.dice.randrange(make.count) if make.count > 1 and make.dice.random() < 0.1 else -1
    for _ in range(make.minutes(14, 30)):
        make.look(_POLLING, "waiting_kernel", but=but)


def _data_stall(make: _Maker) -> None:
    """The loader falls behind: a step every 10 to 60 s, and for some minutes none."""
    make.start()
    at_work = make.training()
    make.train(make.minutes(12, 25), at_work)
    part = make.of(0.01, 0.12)
    goes_dry = make.dice.random() < 0.15
    for number in range(make.minutes(14, 30)):
        is_dry = goes_dry and number % (7 * _MINUTE) < 3 * _MINUTE
        load = Load() if is_dry else scaled(at_work, part * make.of(0.3, 1.8))
        load.pcie = make.of(0, 0.2)
        make.look(load, "waiting_for_data")


def _decode(make: _Maker) -> None:
    """A server that decodes: much memory, few tensor operations. One of twelve polls by a kernel without requests."""
    make.start()
    polls = make.trace.looks_alike = make.dice.random() < 1 / 12
    dram = make.of(0.04, 0.8)
    for _ in range(make.minutes(30, 45)):
        part = make.of(0.7, 1.0)
        load = Load(make.of(0.96, 1.0), dram * 0.12 * part, dram * part, 0.05 * part, 0.1, 1.0, 0.1 + 0.3 * dram)
        make.look(_POLLING if polls and len(make.trace.looks) > 12 * _MINUTE else load)


def _compile(make: _Maker) -> None:
    """A compiler runs, with kernels that it tries; then a training. Some compile again in the middle."""
    make.start()
    for _ in range(make.minutes(5, 25)):
        tries = make.dice.random() < 0.3
        make.look(Load(make.of(0.02, 0.6), 0.05, 0.05, 0.02, 0.0, 0.0, 0.1) if tries else Load())
    at_work = make.training()
    make.train(make.minutes(12, 20), at_work)
    if make.dice.random() < 0.3:
        make.trace.looks_alike = True
        for _ in range(make.minutes(2, 14)):
            tries = make.dice.random() < 0.3
            make.look(Load(make.of(0.01, 0.2), 0.01, 0.01, 0.01, 0.0, 0.0, 0.03) if tries else Load())
        make.train(make.minutes(3, 6), at_work)


def _checkpoint(make: _Maker) -> None:
    """Checkpoints: this node writes, or waits in a collective for one that does. A slow disk takes minutes."""
    make.start()
    at_work = make.training()
    waits = make.dice.random() < 0.5
    is_slow = make.dice.random() < 0.12
    make.trace.looks_alike = waits and is_slow
    for _ in range(3):
        make.train(make.minutes(6, 14), at_work)
        for number in range(make.minutes(8, 15) if is_slow else make.minutes(0.5, 6)):
            copies = Load(active=make.of(0, 0.06), dram=0.006, pcie=make.of(4, 20), power=0.05)
            writes = copies if number < 2 * _MINUTE else Load(active=0.0, pcie=make.of(0, 0.3))
            make.look(_POLLING if waits else writes)


def _evaluation(make: _Maker) -> None:
    """Evaluations between trainings: less activity, but some. One of seven scores on the CPU between batches."""
    make.start()
    at_work = make.training()
    scores_on_cpu = make.trace.looks_alike = make.dice.random() < 1 / 7
    for _ in range(2):
        make.train(make.minutes(10, 15), at_work)
        part = make.of(0.03, 0.15) if scores_on_cpu else make.of(0.3, 0.7)
        for _ in range(make.minutes(4, 16)):
            make.look(scaled(at_work, part * make.of(0.6, 1.4)))


def _plain(make: _Maker) -> None:
    """A training; one of eight is a simulation that computes in the caches, without tensor cores and memory."""
    make.start()
    if make.dice.random() < 1 / 8:
        at_work = Load(make.of(0.97, 1.0), 0.0, make.of(0.001, 0.015), make.of(0.1, 0.7), 0.0, 0.0, make.of(0.3, 0.9))
    else:
        at_work = make.training()
    make.train(make.minutes(30, 45), at_work)


def _notebook(make: _Maker) -> None:
    """A notebook or an idle pod, with a cell now and then. One of 25 runs a kernel of a single block for long."""
    make.start()
    is_tiny = make.trace.looks_alike = make.dice.random() < 1 / 25
    left = 0
    for number in range(make.minutes(30, 45)):
        if left <= 0 and make.dice.random() < 0.02:
            left = make.minutes(0.5, 4)
        left -= 1
        load = Load(make.of(0.1, 0.9), 0.1, 0.2, 0.1, 0.5, 0.0, 0.3) if left > 0 else Load()
        make.look(_POLLING if is_tiny and number > 10 * _MINUTE else load)


KINDS: Mapping[str, Callable[[_Maker], None]] = {
    "hang in a collective": _hang,
    "data stall": _data_stall,
    "memory-bound decode": _decode,
    "compile": _compile,
    "checkpoint": _checkpoint,
    "evaluation": _evaluation,
    "plain training": _plain,
    "notebook or idle": _notebook,
}
RIGHT = {"hang in a collective": "waiting_kernel", "data stall": "waiting_for_data"}


def traces(seed: int, of_each: int = OF_EACH) -> Iterator[Trace]:
    """So many traces of each kind."""
    for kind, plays in KINDS.items():
        for number in range(of_each):
            maker = _Maker(kind, random.Random(f"{seed}/{kind}/{number}"))
            maker.before()
            plays(maker)
            yield maker.trace


def said_of(trace: Trace) -> Sequence[str]:
    """What the watch says at each look of the job, "" for nothing."""
    card = trace.card
    count = len(trace.looks[0])
    keys = [DeviceKey(uuid=f"GPU-{gpu}", instance="1" if card.is_mig else "") for gpu in range(count)]
    owner = Owner(namespace="ml", pod="job-0", container="main")
    job = [JobDevice(key, owner, Job("ml", "job-0"), card.name, is_mig=card.is_mig) for key in keys]
    powers, jobs = PowersOfModels(), WatchedJobs()
    at_ns = 0
    texts: list[str] = []
    for number, look in enumerate([*trace.history, *trace.looks]):
        at_ns += LOOK_SECONDS * _NS
        if not card.is_mig:
            for signs in look:
                powers.note(card.name, signs)
            powers.settle()
        is_held = number >= len(trace.history)
        signs_of = dict(zip(keys, look, strict=True))
        hangs = jobs.look(jobs_of(job) if is_held else {}, signs_of, powers.levels, at_ns)
        if is_held:
            texts.append(hangs[0].reason if hangs else "")
    return texts


@dataclass
class Score:
    """Numbers of traces: all, those of which something right or wrong was said, and the look-alikes of the latter."""

    traces: int = 0
    right: int = 0
    wrong: int = 0
    alike: int = 0

    def add(self, other: "Score") -> None:
        """Add the numbers of others."""
        self.traces += other.traces
        self.right += other.right
        self.wrong += other.wrong
        self.alike += other.alike


Scores = Mapping[tuple[str, str], Score]  # by kind and page


def scores(seed: int, of_each: int = OF_EACH) -> Scores:
    """The scores. What is suspicions is wrong if the job does not hang then, or for another reason."""
    made: dict[tuple[str, str], Score] = {}
    for trace in traces(seed, of_each):
        suspicions = said_of(trace)
        pairs = Counter((text, truth) for text, truth in zip(suspicions, trace.truth, strict=True) if text)
        is_wrong = any(text != truth for text, truth in pairs)
        is_right = any(text == truth for text, truth in pairs)
        score = Score(1, is_right, is_wrong, is_wrong and trace.looks_alike)
        made.setdefault((trace.kind, trace.page), Score()).add(score)
    return made


def total(made: Scores, kinds: Iterable[str] = KINDS, page: str = "") -> Score:
    """The sum of some kinds, on one page or on all."""
    score = Score()
    for (kind, of_page), part in made.items():
        if kind in kinds and page in ("", of_page):
            score.add(part)
    return score


def precision(made: Scores) -> float:
    """The part of the traces of which something was said in which it was right."""
    score = total(made)
    return score.right / max(1, score.right + score.wrong)


def recall(made: Scores, kinds: Iterable[str] = RIGHT, page: str = "") -> float:
    """The part of the traces that hang or starve in which it was said."""
    score = total(made, kinds, page)
    return score.right / max(1, score.traces)


def report(made: Scores) -> str:
    """The scores as tables in Markdown."""
    lines = [
        "| kind | traces | suspected, rightly | suspected, wrongly | of these, look-alikes |",
        "|---|---|---|---|---|",
    ]
    for kind in KINDS:
        score = total(made, [kind])
        lines.append(f"| {kind} | {score.traces} | {score.right} | {score.wrong} | {score.alike} |")
    score = total(made)
    lines.append(f"| all | {score.traces} | {score.right} | {score.wrong} | {score.alike} |")
    lines += ["", f"Precision {precision(made):.1%}, recall {recall(made):.1%}."]
    lines += ["", "| recall by page | hang in a collective | data stall |", "|---|---|---|"]
    for page, words in PAGE_WORDS.items():
        cells = [recall(made, [kind], page) for kind in RIGHT]
        lines.append(f"| {words} | {cells[0]:.0%} | {cells[1]:.0%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="precision and recall of suspected hangs on made traces")
    parser.add_argument("--seed", type=int, default=HELD_OUT)
    parser.add_argument("--of-each", type=int, default=OF_EACH)
    given = parser.parse_args()
    print(report(scores(given.seed, given.of_each)))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
