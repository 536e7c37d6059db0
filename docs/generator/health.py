"""docs/health.md: the verdicts on devices, their sources, and what to do, from the program's own rules."""

from collections import defaultdict
from collections.abc import Iterator

from docs.generator.markdown import code, document, prose, table
from exporter.accounts.out_of_memory import CROWDED, FULL, RISEN
from exporter.dcgm.fields import LINK_COUNTERS, RULES
from exporter.dcgm.health_watches import FAIL, FAMILY, HEALTH_ERRORS, WARN, WATCHES, code_of
from exporter.dcgm.links import KINDS
from exporter.dcgm.table import TABLE
from exporter.dcgm.xids import XIDS, is_error, verdict_of
from exporter.model.accounts import Suspicion
from exporter.model.health import OF_DCGM, VERDICTS, HealthReason, Verdict
from exporter.ownership.kernel_events import OF_KIND
from exporter.ownership.link_errors import NVLINK_ERRORS
from exporter.ownership.link_states import DOWN, ILL_FABRIC, LATE_FABRIC, NARROW, NO_FABRIC, SLOW
from exporter.ownership.taints import EFFECTS, ONE_GPU_LOST, SOME_GPU_LOST, UNWATCHED
from exporter.ownership.verdicts import MISSING, UNCLEAR, UNHEALTHY, UNLISTED, UNOFFERED, UNREAD
from exporter.sources.nvml.library import LOST, UNASKED

_INTRO = """\
Each GPU and MIG instance has one verdict, by all that speak of it: the kubelet, the kernel's log, the driver, and the
page of samples. Nobody's word is enough alone. The kubelet goes on saying Healthy of a device that its plugin no longer
lists; a page shows the last XID, and none of a GPU that has fallen off the bus; the kernel's log has every error, and
hardly ever says when one is over. So every word counts, and the worst is the verdict:

| verdict | means |
|---|---|
| `gone` | the driver cannot reach the GPU |
| `failing` | it has to be reset, restarted or replaced; programs on it fail, or may have wrong results |
| `unknown` | nobody can say: no source has read it, or its device plugin no longer offers it |
| `degraded` | it works, slower or with less to spare; something is to be done when it is free |
| `ok` | a source has read it, and nobody complains; or only the kubelet names it, and calls it Healthy |

A MIG instance has its own reasons and those of its GPU. `pod_gpu_device_verdict` on `/metrics` has a row for each
device and holder, also for devices that nobody holds; `/container/metrics` has `health` and `health_reasons`.
`pod_gpu_device_health` stays the kubelet's own word. The exporter tells; it drains and resets nothing.

A device that is `failing` or `gone` and that nobody holds is not free: its `state` is `failing`. `last_xid` is its last
[XID that is an error](#xids) by the kernel's log, also one that no page shows; else the page's. Taints count as
ResourceSlices have them; those of a `DeviceTaintRule` are not read. A taint `gpu.nvidia.com/xid` of NVIDIA's DRA driver
counts as the XID that it names, whatever its effect, and ends as an error of the kernel's log does. A taint NoSchedule
stays until that driver starts anew, and makes the device at least `degraded`. Other taints with the effect None say
nothing."""
_TIMES = """\
## For how long a word counts

- The kubelet's word counts while it says it. While a kubelet or a plugin restarts, the word before counts for 30 s.
  `Unknown` without a message, as the kubelet calls devices of NVIDIA's DRA driver, counts only while nobody reads the
  device.
- What a page says of the GPU as it is counts while the page has it, and two minutes more while the page is away.
  Lowered clocks count for five minutes, and errors of NVLink for an hour: both come and go. What
  [DCGM finds](#dcgms-own-verdict) counts while DCGM says it, and of XIDs it says it until it starts anew.
- A source that is late changes nothing: a device that was read is not `unknown` before two minutes have passed. A GPU
  that a page lacks afterwards is `missing` for a day, since dcgm-exporter leaves out a GPU that it lost.
- An error in the kernel's log that makes a GPU `gone` or `failing` counts until the driver says that nothing is to be
  done any more (XID 154, recovery action None), until the GPU's energy counter begins anew (a reset, or the driver was
  loaded anew), or for a day. One that degrades it counts for an hour. A restart of the exporter changes nothing: what
  the log still has is read again.
- Where the kernel's log is not read (`--kernel-log.mode off`), XIDs on the page count in its place: a new value is an
  error. The value that was there first counts only if the GPU had to be reset since."""
_DCGM = f"""\
## DCGM's own verdict

DCGM has health watches, and dcgm-exporter writes what they find, if its file of counters has this line:

```
{FAMILY}, gauge, What DCGM's health watches find.
```

It is in no file by default: where DCGM cannot answer, dcgm-exporter's whole page is an error. dcgm-exporter knows the
name from 4.0.0 on. It writes a row for each GPU and watch, with the error as `health_error_code`: {FAIL} makes the GPU
and its MIG instances `failing`, {WARN} makes them `degraded`. One failure makes them `degraded` only:
`{code_of("NVLINK_ERROR_CRITICAL")}`, since DCGM finds it at one replay within a minute, and on Hopper at any that
the GPU had since its reset. The watches are
{", ".join(map(code, WATCHES))}.
`ALL` is the GPU as a whole, and is there from 4.8.2 on. An error that both `ALL` and a watch of a part have is one.

That one and two warnings mostly say nothing of a GPU, and GpuDegraded does not fire for them alone:
[GpuLinkErrors](alerts.md#gpulinkerrors) counts replays; the warnings are `dcgm-clocks-event-power`, as
GPUs at full load work at their power limit, and `dcgm-xid-error`, as DCGM says so after errors of programs, too (XIDs
31, 32 and 43), until it starts anew.

These are the errors that it may find of a GPU (DCGM 4.6); of any other the reason is `dcgm`, and the text has its
name."""
_XIDS = """\
By NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors): what is to be done says how bad it is. An error of a program
says nothing of its GPU: `ok`. One of NVLink whose text calls it Fatal is `failing`. A number that is not here is
`degraded`."""
_INFORMING = """\
### XIDs that only inform

These are no errors. They are in no count (`pod_gpu_xid_errors_total`, GpuXid), in no `last_xid` and no reason, and no
Event of type Warning tells of them. The kernel's log has them, and so has `/events`; `xid_errors` and
`DCGM_FI_DEV_XID_ERRORS` stay what the page says."""
_DECIDED = """\
**154** says what the driver recommends, and with a recovery action other than None the GPU is `failing` by that: a
reset, or a restart of the node. None ends what was said before.

**43 and 45** say that a program has come to its end, which is news for its pod alone. Of 43 the catalogue says that the
program had a fault of its own and had to be ended, that the GPU stays healthy, and that nothing is to be done at once
(its bucket is IGNORE). 45 comes whenever a program is ended from without, by Ctrl-C, a signal or a reset, and for each
program that another error takes along; that error has an XID of its own, and is counted as that. If these two counted,
each pod that is killed would be an error. So the operator tells the pod by an Event of type Normal ([Events on
pods](operator.md#events-on-pods)). 13 and 31 are errors of a program, too, and counted: there is something to look for,
such as a wrong address."""
_MEMORY = """\
## Out of GPU memory

A program that lacks GPU memory ends by itself, mostly with exit code 1 (an exception of Python) or 134 (an abort). The
kubelet says that code and no more, and the driver says nothing. So the exporter can only suspect a lack of memory, by
what it saw in the minute before the end. `kubectl gpu why POD`, `doctor` and `/events` say the suspicion in words.
`pod_gpu_suspected_out_of_memory_total` counts each end once, on the GPU that was fullest."""
_SEEN = {
    "likely": (
        "the [CUDA probe](cuda.md#the-cuda-probe) counted allocations of the container that failed for lack of memory,"
        " even if much was free"
    ),
    "suspected": (
        f"the memory was full ({FULL * 100:.0f} % or more), at least {RISEN * 100:.0f} % of it filled up while the"
        " container held the GPU, and the driver reported no XID of a program"
    ),
    "possible": (
        f"the memory was full, but it was as full all along; or other containers used {CROWDED * 100:.0f} % of it; or"
        " the driver reported an XID of a program, such as 31 or 13: this may be the cause of the end, or follow from"
        " an allocation that nobody checked"
    ),
}
_NOT_SUSPECTED = """\
On a shared GPU the suspicion names the neighbour that used the most memory, if [use is measured](sharing.md). For a MIG
instance the instance's own memory counts. A page has what dcgm-exporter read last, by default up to 30 s before.

The exporter suspects nothing if something else explains the end:

- exit code 0, or the code of a signal that others send (129, 130, 137, 143): somebody deleted the pod, a liveness probe
  failed, or a launcher ended its workers;
- the pod was deleted, evicted or preempted, or its node shut down;
- the container did not start (126, 127, 128), or its runtime lost it;
- `OOMKilled`: the kernel killed the container for its limit of the machine's memory, which is not the GPU's.
  `kubectl gpu why` says so;
- an XID that means a failure of the GPU ([XIDs](#xids)): then the GPU's health is the reason.

The exporter may be wrong, or see nothing:

- Frameworks keep memory that they do not use, so a GPU may be full for hours and lack nothing. If its program then ends
  for another fault, the suspicion is `possible`. vLLM takes 90 % at its start, and JAX 75 %: what JAX lacks within its
  own part never looks full.
- An allocation may fail while much is free, such as 10 GiB with 9 GiB free. Only the probe sees that.
- A program may fill the memory and end between two reads of dcgm-exporter, or catch the error and go on. Nobody sees
  either.
- A program that answers a signal with an exit code of its own, such as 1, looks like one that ended by itself.
- If a container ends twice between two looks (`--accounting.interval`), the exporter sees one end.
- If the page shows an XID only later, the exporter does not know it at the end. With `--kernel-log.mode on` it does.

Only pods tell how a container ended. If the exporter does not read them, it counts nothing ([when it reads
them](bill.md#where-it-is-known)). `--accounting.state` keeps the counts and the last minute, so that an end during a
restart of the exporter is judged, too."""
_KEP = "KEP-4680: `allocatedResourcesStatus`"


def page() -> str:
    """The page."""
    rules = (_row(reason, condition, source) for reason, condition, source in _rules())
    heads = ("condition", "verdict", "reason", "what to do", "where the rule is from")
    errors = defaultdict(list)
    for number, xid in sorted(XIDS.items()):
        if is_error(number):
            errors[verdict_of(number), xid.remedy].append(f"{number} {xid.name}")
    rows = [
        (code(verdict), "; ".join(map(prose, names)), prose(remedy))
        for (verdict, remedy), names in sorted(errors.items(), key=lambda item: VERDICTS.index(item[0][0]))
    ]
    informing = [
        (f"{number} {prose(xid.name)}", prose(xid.cause), prose(xid.remedy))
        for number, xid in sorted(XIDS.items())
        if number and not is_error(number)
    ]
    return document(
        "How a device is",
        _INTRO,
        _TIMES,
        "## The rules",
        table(heads, rules),
        _LINKS.strip(),
        table(("kind", "means", "degrades the GPU", "families, without DCGM_FI_DEV_"), _link_kinds()),
        _LINK_STATES.strip(),
        _DCGM,
        table(("error", "reason", "means", "what to do"), _dcgm_errors()),
        "## XIDs",
        _XIDS,
        table(("verdict", "XIDs", "what to do"), rows),
        _INFORMING,
        table(("XID", "cause", "what to do"), informing),
        _DECIDED,
        _MEMORY,
        table(("suspicion", "what was seen in the minute before the end"), _suspicions()),
        _NOT_SUSPECTED,
    )


def _suspicions() -> Iterator[tuple[str, str]]:
    """Each word for a suspicion, and what stands behind it."""
    for suspicion in Suspicion:
        yield code(suspicion), _SEEN[suspicion]


def _rules() -> Iterator[tuple[HealthReason, str, str]]:
    kubelet = "`pod_gpu_device_health`"
    yield UNHEALTHY, f"{kubelet} is Unhealthy", _KEP
    yield UNCLEAR, f"{kubelet} is Unknown", _KEP
    yield UNOFFERED, "the kubelet does not offer it any more, for 30 s", "GetAllocatableResources"
    for effect, reason in EFFECTS.items():
        yield reason, f"the device of a ResourceSlice has a taint {effect}", "KEP-5055, where slices are read"
    taint, driver = "a taint `gpu.nvidia.com/", "NVIDIA's DRA driver, device_health.go"
    yield ONE_GPU_LOST, f"{taint}gpu-lost`, on devices of one GPU alone", driver
    yield SOME_GPU_LOST, f"{taint}gpu-lost` on several GPUs; `unknown` for a device that no source reads", driver
    yield UNWATCHED, f"{taint}unmonitored`, and no source reads the device", driver
    yield OF_KIND["lost", ""], "kernel's log: XID 79, or a GPU that the driver could not reach", "NVIDIA's catalogue"
    for severity in ("fatal", "nonfatal"):
        yield OF_KIND["pcie", severity], f"kernel's log: an error of PCI Express, {severity}", "Linux' AER"
    for code_of_nvml, reason in LOST.items():
        yield reason, prose(reason.message), f"nvml.h, nvmlReturn_t {code_of_nvml}"
    yield UNASKED, prose(UNASKED.message), "any other nvmlReturn_t"
    yield UNLISTED, prose(UNLISTED.message), "nvmlDeviceGetCount"
    for row in TABLE:
        for rule in RULES.get(row.name, ()):
            has = f"has one of the bits {rule.bits:#x}" if rule.bits else "is not 0"
            yield rule.reason, f"{code(row.family)} {has}", _SOURCES[rule.reason.reason]
    yield NVLINK_ERRORS, "a counter of [errors of NVLink](#errors-of-links) grows", "DCGM's health watch of NVLink"
    yield DOWN, "an NVLink is down that [was up](#links-as-they-are)", "nvml.h, NVML_NVLINK_STATE_…"
    manager = code("DCGM_FI_DEV_FABRIC_MANAGER_STATUS")
    yield NO_FABRIC, f"{manager} is 4, or NVML says so", "dcgmFabricManagerStatus_t"
    yield LATE_FABRIC, f"{manager} is 1 or 2 for 5 minutes", "dcgmFabricManagerStatus_t"
    fabric = f"{code('DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY')} is 2 or 3, or {code('…_MASK')} says what is wrong"
    yield ILL_FABRIC, fabric, "nvml.h, NVML_GPU_FABRIC_HEALTH_…"
    yield NARROW, f"{code('DCGM_FI_DEV_PCIE_LINK_WIDTH')} is below {code('…_MAX_LINK_WIDTH')}", "nvml.h"
    generation = f"{code('DCGM_FI_DEV_PCIE_LINK_GEN')} is below {code('…_MAX_LINK_GEN')}"
    yield SLOW, f"{generation} under load for 2 minutes", "nvml.h"
    by_value: tuple[tuple[int, Verdict], ...] = ((FAIL, "failing"), (WARN, "degraded"))
    for value, verdict in by_value:
        of_error = HealthReason(f"{OF_DCGM}-…", "", "[by the error](#dcgms-own-verdict)", verdict)
        yield of_error, f"{code(FAMILY)} of a watch is {value}", "DCGM's health watches"
    yield MISSING, prose(MISSING.message), "dcgm-exporter leaves out what it cannot read"
    yield UNREAD, prose(UNREAD.message), "a device that only the inventory or the kubelet names"


def _dcgm_errors() -> Iterator[tuple[str, ...]]:
    for name, error in HEALTH_ERRORS.items():
        yield code(f"DCGM_FR_{name}"), code(code_of(name)), prose(error.text), prose(error.remedy)


_LINKS = """
## Errors of links

If a counter of errors grows, its GPU may be `degraded` for an hour: the table says by which kinds. The message names
the link, and how many errors it had within the hour. `pod_gpu_link_errors_total` counts the errors for the pods that
held the GPU. GPUs and versions of DCGM have different names for the same error: it is always the same reason and the
same `kind`. If a page has a row for each link, by a label `nvlink` or by names such as `…_L5`, these rows count. Of the
sum of all links only what exceeds them counts. Kinds overlap, so do not add them up: a bad packet may also be a
malformed one, and a failed recovery is also a recovery.

A single replay harms nobody, though most healthy links have none. It makes the GPU `degraded` for the hour, which is a
warning of `doctor` (exit code 0 without `--strict`) and no alert. [GpuLinkErrors](alerts.md#gpulinkerrors) fires only
for more errors.
"""
_LINK_STATES = """
## Links as they are

NVML says whether each NVLink is up, and to which GPU or switch it leads (`--nvml.mode`). A page says whether it is up
if it has `DCGM_FI_DEV_NVLINK_GET_STATE`, which needs a dcgm-exporter that writes a row for each link.

A link is down if it was up before, since the exporter started, or if the same link is up on every other GPU of the
model on the node. So a card without a bridge is well, and so is a GPU that is cut into MIG instances. If no GPU of the
node has a link up, NVLink is switched off, and no link is called down.

`…_MAX_LINK_WIDTH` and `…_MAX_LINK_GEN` are what card and slot can do together. A card with fewer lanes is `degraded`,
also if it had fewer from the start: it may not sit well in its slot. If the slot itself can do less than the card,
nothing is wrong. Then `doctor` and `kubectl gpu why` say that another slot would be faster. They know it from NVML, or
from another GPU of the model.

PCIe lowers its generation while a GPU is idle. So a low generation counts only while the GPU is active for 10 % or
more.
"""


def _link_kinds() -> Iterator[tuple[str, ...]]:
    families: defaultdict[str, list[str]] = defaultdict(list)
    for name, counter in LINK_COUNTERS.items():
        if not counter.link:
            families[counter.kind].append(name.decode())
    for kind, words in KINDS.items():
        names = ", ".join(code(name.removeprefix("DCGM_FI_DEV_")) for name in families[kind])
        yield code(kind), words.plural, "yes" if words.is_fault else "no", names


_SOURCES = {
    **dict.fromkeys(("row-remap-pending", "row-remap-failed", "page-pending"), "NVIDIA's GPU memory error management"),
    **dict.fromkeys(("hot", "power", "slowdown"), "nvml.h, nvmlClocksEventReason…"),
    "ecc": "DCGM's health watch of memory",
    **dict.fromkeys(("nvlink-recovery", "nvlink-fatal"), "dcgm_structs.h, DCGM_GPU_NVLINK_ERROR_…"),
}


def _row(reason: HealthReason, condition: str, source: str) -> tuple[str, ...]:
    return condition, code(reason.verdict), code(reason.reason), prose(reason.remedy), source
