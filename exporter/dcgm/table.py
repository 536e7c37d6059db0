"""The table of DCGM's fields: one row for each field, in the order of the counters file. All else is made of it.

The rows are in table.json, whose keys are the fields of `DcgmField` and of `NvmlCall`; `arguments_are` has the types of
a call's arguments in nvml.h. Dashboards and rules ask for the names up to DCGM 4.8. DCGM 4.9 has other names, mostly
with other units. The names in lower case are those of the shell version (1.x); dcgm-exporter still writes them with its
1.x-compatibility-metrics.csv, which also has names of its own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pkgutil import get_data
from typing import Any, Literal, NamedTuple


class Additive(Enum):
    """The way to divide a quantity: a gauge by its present amount, a counter by its increases."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Unit(Enum):
    """The units of values. A unit is `times` / `per` of the unit that DCGM 4.9 has in its place."""

    NUMBER = ("", 1, 1)
    RATIO = ("0 to 1", 1, 1)
    PERCENT = ("%", 1, 100)
    BYTES = ("bytes", 1, 1)
    KIB = ("KiB", 1024, 1)
    MIB = ("MiB", 1024 * 1024, 1)
    GIB = ("GiB", 1024**3, 1)
    BYTES_PER_SECOND = ("bytes/s", 1, 1)
    MEGABYTES_PER_SECOND = ("MB/s", 1_000_000, 1)
    # DCGM's megabyte of NVLink: DCGM divides the driver's KiB by 1,000, and multiplies them by 1,024 for bytes
    THOUSAND_KIB_PER_SECOND = ("MB/s", 1_024_000, 1)
    HERTZ = ("Hz", 1, 1)
    MEGAHERTZ = ("MHz", 1_000_000, 1)
    SECONDS = ("s", 1, 1)
    NANOSECONDS = ("ns", 1, 1_000_000_000)
    JOULES = ("J", 1, 1)
    MILLIJOULES = ("mJ", 1, 1000)
    MICROJOULES = ("uJ", 1, 1_000_000)
    WATTS = ("W", 1, 1)
    MILLIWATTS = ("mW", 1, 1000)
    CELSIUS = ("°C", 1, 1)

    def __init__(self, symbol: str, times: int, per: int) -> None:
        self.symbol = symbol
        self.times = times
        self.per = per


# Functions of nvml.h whose answers the exporter reads in a way of its own.
FIELD_VALUES = "nvmlDeviceGetFieldValues"  # the argument is a number NVML_FI_DEV_…
GPM_METRICS = "nvmlGpmMetricsGet"  # the argument is a number NVML_GPM_METRIC_…; percent for a ratio, else MiB a second
MEMORY_INFO = "nvmlDeviceGetMemoryInfo"
LICENCES = "nvmlDeviceGetGridLicensableFeatures_v4"
EVENTS = "nvmlEventSetWait_v2"


COUNTERS_FILES = ("3.3", "4.4", "4.8.3")
"""The first dcgm-exporter for each counters file, by the fields that its go-dcgm knows and that it counts itself."""


class NvmlCall(NamedTuple):
    """The function of nvml.h that gives a field's value, and its arguments after the GPU's handle.

    `take` is the place of the value in an answer of several values. Drivers without the function have the function
    `older`.
    """

    function: str
    arguments: tuple[int, ...] = ()
    take: int | None = None
    older: str = ""


Kind = Literal["gauge", "counter", "label"]


@dataclass(frozen=True, slots=True)
class DcgmField:
    """A row of the table. Names lack DCGM_FI_; names of families that dcgm-exporter itself counts lack DCGM_.

    - `newer`: the name in DCGM 4.9 and its unit; None if the name stayed, or if no new name is known;
    - `oldest`: the name that the shell version wrote, "" for none. `also` are further whole names, and `also_newer`
      further names with the newer unit;
    - `json`: the field of /container/metrics that holds the value in the first name's unit, and its place there;
    - `additive`: whether the value adds up over the owners of a device. `--sharing split` divides such values. The name
      decides, never the TYPE: dcgm-exporter types NVLINK_BANDWIDTH_TOTAL a counter, but it is a rate;
    - `of_gpu`: whether an additive value is the whole GPU's, which dcgm-exporter repeats on the row of each MIG
      instance. Memory is the instance's own;
    - `accounts`: the accounts' name for it, and the power of ten from the first name's unit to the accounts' unit,
      which is a millionth, and for time the nanosecond;
    - `nvml`: None if NVML does not know the value;
    - `otel`: the metric of OpenTelemetry's conventions with the value, in DCGM 4.9's unit, and the attribute that names
      the value. If several rows have the same metric, a GPU's value is the first row's that a page has;
    - `labels`: the labels that tell a device's samples of this family apart, and that describe each sample;
    - `is_in_file`: whether the counters file of daemonset.yaml has it;
    - `since`: the first dcgm-exporter that knows the name, one of COUNTERS_FILES; "" if each does. dcgm-exporter ends
      at a name in its file that it does not know. `before` is the field's name in older ones, "" if they lack it.
    """

    name: str
    help: str
    unit: Unit = Unit.NUMBER
    newer: tuple[str, Unit] | None = None
    nvml: NvmlCall | None = None
    json: tuple[str, int] | None = None
    kind: Kind = "gauge"
    oldest: str = ""
    also: tuple[str, ...] = ()
    also_newer: tuple[str, ...] = ()
    additive: Additive | None = None
    of_gpu: bool = False
    accounts: tuple[str, int] | None = None
    is_in_file: bool = True
    since: str = ""
    before: str = ""
    otel: tuple[str, str, str] | None = None
    labels: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """The whole name up to DCGM 4.8."""
        return _whole(self.name)

    @property
    def newer_family(self) -> str:
        """The whole name in DCGM 4.9."""
        return _whole(self.newer[0]) if self.newer else self.family

    @property
    def newer_unit(self) -> Unit:
        """The unit in DCGM 4.9."""
        return self.newer[1] if self.newer else self.unit


def _whole(name: str) -> str:
    return f"DCGM_{name}" if name.startswith("EXP_") else f"DCGM_FI_{name}"


def _row(content: Mapping[str, Any]) -> DcgmField:
    row: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
    if "unit" in row:
        row["unit"] = Unit[row["unit"]]
    if "newer" in row:
        name, unit = row["newer"]
        row["newer"] = (name, Unit[unit])
    if "additive" in row:
        row["additive"] = Additive(row["additive"])
    if "nvml" in row:
        call = row["nvml"]
        arguments = tuple(call.get("arguments", ()))
        row["nvml"] = NvmlCall(call["function"], arguments, call.get("take"), call.get("older", ""))
    return DcgmField(**row)


_CONTENT: Mapping[str, Sequence[Mapping[str, Any]]] = json.loads(get_data(__package__, "table.json") or b"")
GROUPS = tuple((heading, tuple(map(_row, rows))) for heading, rows in _CONTENT.items())
TABLE = tuple(chain.from_iterable(rows for _, rows in GROUPS))
