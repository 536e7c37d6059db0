"""docs/health.md: the verdicts on devices, their sources, and what to do, from the program's own rules."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from docs.generator.markdown import code, document, prose, table
from exporter.accounts.out_of_memory import CROWDED, FULL, RISEN
from exporter.dcgm.fields import RULES
from exporter.dcgm.health_watches import FAIL, FAMILY, WARN, code_of
from exporter.dcgm.links import KINDS
from exporter.dcgm.table import TABLE
from exporter.dcgm.xids import XIDS, is_error, verdict_of
from exporter.model.accounts import Suspicion
from exporter.model.health import OF_DCGM, VERDICTS, HealthReason
from exporter.ownership.kernel_events import OF_KIND
from exporter.ownership.link_errors import NVLINK_ERRORS
from exporter.ownership.link_states import DOWN, ILL_FABRIC, LATE_FABRIC, NARROW, NO_FABRIC, SLOW
from exporter.ownership.taints import EFFECTS, ONE_GPU_LOST, SOME_GPU_LOST, UNWATCHED
from exporter.ownership.verdicts import MISSING, UNCLEAR, UNHEALTHY, UNLISTED, UNOFFERED, UNREAD
from exporter.sources.nvml.library import LOST, UNASKED

_INTRO = """\
Which GPU is broken or slow, and what to do? `kubectl gpu why POD` and `doctor` say it in words, and
`/container/metrics` in `health_reasons`. Prometheus has a row for each device and holder, also for free ones:

```
pod_gpu_device_verdict{verdict!="ok"}
```

Each GPU and MIG instance has one verdict. The kubelet, the kernel's log, the driver and dcgm-exporter's page report,
and the worst report counts:

| verdict | means |
|---|---|
| `gone` | the driver cannot reach the GPU |
| `failing` | it must be reset, restarted or replaced; programs fail, or may have wrong results |
| `unknown` | no source has read it, or its device plugin no longer offers it |
| `degraded` | it works, slower or with less to spare; act when it is free |
| `ok` | a source has read it, and nothing is wrong; or only the kubelet names it, as Healthy |

A MIG instance has its own reasons and those of its GPU. `pod_gpu_device_health` is the kubelet's report alone. If a
`failing` or `gone` device has no holder, its [state](endpoints.md#states) is `failing`, not `free`. The exporter drains
and resets nothing."""
_RULES = """\
## The rules

*Log* is the kernel's log on the node: `dmesg | grep -e NVRM -e Xid -e AER`. Families stand without `DCGM_FI_DEV_`.
Without another verdict the reason means `degraded`."""
_TAINTS = """\
Taints are those of ResourceSlices; `DeviceTaintRule`s are not read. `gpu.nvidia.com/xid` counts as its XID, whatever
its effect. NoSchedule stays until NVIDIA's DRA driver restarts. Other taints with the effect None do not count."""
_TIMES = """\
## For how long a report counts

| report | counts |
| --- | --- |
| the kubelet's | while it stands; for 30 s while a kubelet or a plugin restarts |
| the kubelet's `Unknown` without a message (NVIDIA's DRA driver) | only while no source reads the device |
| the page's | while the page has it; two minutes more while the page is away |
| lowered clocks | five minutes |
| NVLink errors; `degraded` by the log | an hour |
| `missing` | a day: dcgm-exporter leaves out a GPU that it lost |
| `gone` or `failing` by the log | a day, or until a reset, a driver reload, or XID 154 with recovery action None |

A device that was read becomes `unknown` after two minutes at the earliest. A restarted exporter reads the log again.
With `--kernel-log.mode off` each new value of XIDs on the page is an error. The first value counts only if the GPU had
to be reset since."""
_DCGM = f"""\
## DCGM's own verdict

The exporter reads DCGM's health watches if dcgm-exporter's counters file has this line (dcgm-exporter 4.0.0 or later):

```
{FAMILY}, gauge, What DCGM's health watches find.
```

No file has it by default: if DCGM cannot answer, dcgm-exporter's whole page fails. The value {FAIL} makes the GPU and
its MIG instances `failing`, {WARN} `degraded`. The reason is `dcgm-` and the error's name (DCGM 4.6):
`{code_of("FAULTY_MEMORY")}` for `DCGM_FR_FAULTY_MEMORY`. Any other error is `dcgm`. `ALL` is the watch
of the whole GPU (from 4.8.2 on).

Three reasons often say nothing of the GPU, and GpuDegraded does not fire for them alone:

- `{code_of("NVLINK_ERROR_CRITICAL")}`: one replay is enough for DCGM, on Hopper any since the last reset. It is
  `degraded` only; [GpuLinkErrors](alerts.md#gpulinkerrors) counts replays.
- `{code_of("CLOCKS_EVENT_POWER")}`: GPUs at full load work at their power limit.
- `{code_of("XID_ERROR")}`: DCGM also reports errors of programs (XIDs 31, 32, 43), until it restarts."""
_XIDS = """\
The reason is `xid`, for 79 `fell-off-bus`. `ok` is a program's error. Other numbers are `degraded`. An NVLink error
whose text says Fatal is `failing`. `last_xid` is the last error by the log, else by the page. Source:
[NVIDIA's catalogue](https://docs.nvidia.com/deploy/xid-errors)."""
_INFORMING = """\
### XIDs that only inform

These are no errors. `pod_gpu_xid_errors_total`, GpuXid, `last_xid`, reasons and Warning Events leave them out. The log,
`/events`, `xid_errors` and `DCGM_FI_DEV_XID_ERRORS` have them."""
_DECIDED = """\
If **154** recommends a recovery action other than None, the GPU is `failing`; None ends earlier errors. **43** and
**45** say that a program ended; 45 follows each Ctrl-C, signal or reset. The operator tells the pod by a Normal
[Event](operator.md#events-on-pods). 13 and 31 do count."""
_MEMORY = """\
## Out of GPU memory

Did a pod fail because its GPU was full? Ask `kubectl gpu why POD`, `doctor` or `/events`. Neither the kubelet nor the
driver reports it, so the exporter can only suspect it. `pod_gpu_suspected_out_of_memory_total` counts each end once, on
the GPU that was fullest."""
_SEEN = {
    "likely": (
        "the [CUDA probe](cuda.md#the-cuda-probe) counted failed allocations of the container, even if much memory was"
        " free"
    ),
    "suspected": (
        f"the memory was full ({FULL * 100:.0f} % or more), at least {RISEN * 100:.0f} % of it filled up while the"
        " container held the GPU, and the driver reported no XID of a program"
    ),
    "possible": (
        "the memory was full, but had been so all along; or other containers used"
        f" {CROWDED * 100:.0f} % of it; or the driver reported an XID of a program, such as 31 or 13"
    ),
}
_NOT_SUSPECTED = """\
On a shared GPU the suspicion names the neighbour with the most memory, if [use is measured](sharing.md). For a MIG
instance its own memory counts. The exporter suspects nothing after

- exit code 0, a signal (129, 130, 137, 143), a start that failed (126, 127, 128) or a lost container;
- a deleted, evicted or preempted pod, or a node that shut down;
- `OOMKilled`: that is the machine's memory, not the GPU's;
- an XID that means a failure of the GPU.

It may be wrong, or miss it:

- Frameworks reserve memory (vLLM 90 %, JAX 75 %): a full GPU may lack nothing, and JAX's part never looks full.
- Only the probe sees an allocation that fails while much is free.
- A program may fill the memory and end between two samples (30 s by default), or catch the error.
- Two ends within one `--accounting.interval` count once.
- Without `--kernel-log.mode on` an XID may come too late.

The exporter must [read pods](bill.md#where-the-queue-comes-from). `--accounting.state` keeps the counts over
its restart.

Next: [alerts](alerts.md), [troubleshooting](troubleshooting.md)"""


def page() -> str:
    """The page."""
    errors: defaultdict[tuple[str, str], defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, xid in sorted(XIDS.items()):
        if is_error(number):
            errors[verdict_of(number), xid.remedy][_short(xid.name)].append(number)
    rows = [
        (
            verdict,
            "; ".join(f"{_numbers(numbers)} {prose(name)}" for name, numbers in names.items()),
            _done(to_do),
        )
        for (verdict, to_do), names in sorted(errors.items(), key=lambda item: VERDICTS.index(item[0][0]))
    ]
    informing: defaultdict[str, list[str]] = defaultdict(list)
    for number, xid in sorted(XIDS.items()):
        if number and not is_error(number):
            informing[xid.remedy].append(f"{number} {_short(xid.name)}")
    return document(
        "How a device is",
        _INTRO,
        _RULES,
        table(("reason (verdict): when", "what to do"), _rows()),
        _TAINTS,
        _TIMES,
        "## XIDs",
        _XIDS,
        table(("verdict", "XIDs", "what to do"), rows),
        _INFORMING,
        table(("XID", "what to do"), ((prose("; ".join(xids)), _done(to_do)) for to_do, xids in informing.items())),
        _DECIDED,
        _LINKS.strip(),
        _link_kinds(),
        _LINK_STATES.strip(),
        _DCGM,
        _MEMORY,
        table(("suspicion", "what was seen in the minute before the end"), _suspicions()),
        _NOT_SUSPECTED,
    )


def _short(name: str) -> str:
    """An XID's name for a phone: the parts of NVLink are one, and long names are shorter."""
    name = re.sub(r"^NVLINK: .*|^NVLINK Error$", "NVLink", name)
    for words, fewer in _SHORTER_NAMES:
        name = name.replace(words, fewer)
    return name


def _done(remedy: str) -> str:
    """What to do, for a page that says once where the log is and that all of this is done on the node."""
    for words, fewer in _FEWER:
        remedy = remedy.replace(words, fewer)
    return prose(_DMESG.sub("", remedy))


def _numbers(numbers: Sequence[int]) -> str:
    """Numbers in order, those in a row as 95-105."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def _suspicions() -> Iterator[tuple[str, str]]:
    """Each word for a suspicion, and what stands behind it."""
    for suspicion in Suspicion:
        yield code(suspicion), _SEEN[suspicion]


def _rows() -> Iterator[tuple[str, str]]:
    """Each thing to do, with the reasons that call for it, their verdicts, and when they are given."""
    by_remedy: defaultdict[str, defaultdict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for reason, condition in _rules():
        to_do = _done(reason.remedy)
        by_remedy[to_do][reason.reason, reason.verdict].append(condition)
    for to_do, conditions in by_remedy.items():
        lines = [f"{code(of)}{_verdict(verdict)}: {', or '.join(each)}" for (of, verdict), each in conditions.items()]
        yield "<br>".join(lines), to_do
    says = f"{code(f'{OF_DCGM}-…')} (failing or degraded): [DCGM](#dcgms-own-verdict) finds an error"
    yield says, "see `kubectl gpu why POD`"


def _verdict(verdict: str) -> str:
    return "" if verdict == "degraded" else f" ({verdict})"


def _rules() -> Iterator[tuple[HealthReason, str]]:
    yield UNHEALTHY, "it says Unhealthy"
    yield UNCLEAR, "it says Unknown"
    yield UNOFFERED, "not in the kubelet's list for 30 s"
    for effect, reason in EFFECTS.items():
        yield reason, f"{effect}"
    yield ONE_GPU_LOST, "`gpu.nvidia.com/gpu-lost` on one GPU only"
    yield SOME_GPU_LOST, "the same on several GPUs (unknown if no source reads it)"
    yield UNWATCHED, "`gpu.nvidia.com/unmonitored`, and no source reads it"
    yield OF_KIND["lost", ""], "XID 79, or the driver could not reach it"
    for severity in ("fatal", "nonfatal"):
        yield OF_KIND["pcie", severity], f"a {severity} PCI Express error in the log"
    for reason in (*LOST.values(), UNASKED, UNLISTED):
        yield reason, prose(reason.message.removeprefix("NVML says that "))
    for row in TABLE:
        for rule in RULES.get(row.name, ()):
            has = f"has bits of {rule.bits:#x}" if rule.bits else "is not 0"
            yield rule.reason, f"{_field(row.family)} {has}"
    yield NVLINK_ERRORS, "a counter of [NVLink errors](#errors-of-links) grows"
    yield DOWN, "an NVLink is down that [was up](#links-as-they-are)"
    yield NO_FABRIC, "`FABRIC_MANAGER_STATUS` is 4, or NVML says so"
    yield LATE_FABRIC, "`FABRIC_MANAGER_STATUS` is 1 or 2 for 5 minutes"
    yield ILL_FABRIC, "`FABRIC_HEALTH_SUMMARY` is 2 or 3, or `…_MASK` names a fault"
    yield NARROW, "`PCIE_LINK_WIDTH` is below `…_MAX_LINK_WIDTH`"
    yield SLOW, "`PCIE_LINK_GEN` is below `…_MAX_LINK_GEN` under load for 2 minutes"
    yield MISSING, "dcgm-exporter's page lacks it, but had it before"
    yield UNREAD, prose(UNREAD.message)


def _field(family: str) -> str:
    return code(family.removeprefix("DCGM_FI_DEV_"))


_SHORTER_NAMES = (
    ("Internal micro-controller", "Controller"),
    ("Power Smoothing HW Circuitry", "Power smoothing"),
    ("ECC page retirement or row remapper recording failure", "Failed page retirement or row remap"),
    ("ECC page retirement or row remapping recording event", "Page retirement or row remap"),
    ("CC traffic seen prior to link properly being configured for encrypted traffic", "CC traffic before encryption"),
    ("Auxiliary power is not connected to the GPU board", "No auxiliary power"),
    ("Non-fatal violation of provisioned InfoROM wear limit", "InfoROM wear limit"),
    ("Errors found in WPR (write protected region)", "Errors in WPR"),
    ("Invalid or corrupted push buffer stream", "Corrupted push buffer"),
)
_FEWER = (
    ("the kernel's log", "the log"),
    (", on the node", ""),
    (" on the node", ""),
    (", which keeps its taints while it runs", ""),
    ("vendor of the node", "vendor"),
    ("pod-gpu-metrics-exporter ", ""),
)
_DMESG = re.compile(r" \(dmesg [^)]*\)")
_LINKS = """
## Errors of links

If an error counter of NVLink grows, the GPU is `degraded` for an hour, and `doctor` names the link. The alert
[GpuLinkErrors](alerts.md#gpulinkerrors) needs more than a single replay. `pod_gpu_link_errors_total` counts the errors
for the pods that held the GPU, by `kind`. Where the page has a row for each link, the sum of
all links adds only what exceeds these rows. Do not add kinds up: they overlap.
"""
_LINK_STATES = """
## Links as they are

NVML says whether each NVLink is up (`--nvml.mode`); so does a page with `DCGM_FI_DEV_NVLINK_GET_STATE` by link.

- A link counts as *down* only if it was up earlier, since the exporter started, or if it is up on every other GPU of
  the model on the node. If no GPU of the node has a link up, NVLink is switched off, and no link is down.
- `…_MAX_LINK_WIDTH` and `…_MAX_LINK_GEN` are what card and slot can do together. A card with fewer lanes is `degraded`:
  it may sit badly in its slot. If only the slot is slower than the card, `doctor` and `kubectl gpu why` say so.
- PCIe lowers its generation while a GPU is idle, so it counts only at 10 % activity or more.
"""


def _link_kinds() -> str:
    """The kinds of errors in two lists."""
    faults = ", ".join(code(kind) for kind, words in KINDS.items() if words.is_fault)
    others = ", ".join(code(kind) for kind, words in KINDS.items() if not words.is_fault)
    return f"- These kinds degrade the GPU: {faults}.\n- These do not: {others}."
