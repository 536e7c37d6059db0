"""What is known of each field of DCGM: one row a field, in the order of the counters file; all else is made of it.

The rows are in table.json, whose keys are the fields of `DcgmField` and of `NvmlCall`; `arguments_are` says of which
types of nvml.h a call's arguments are. The names up to DCGM 4.8 are those that dashboards and rules ask for. DCGM 4.9
has others, mostly with other units. The names in lower case are those of the shell version (1.x); dcgm-exporter writes
them still with its 1.x-compatibility-metrics.csv, which has names of its own besides.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pkgutil import get_data
from typing import Any

from exporter.dcgm.row import Additive, DcgmField, NvmlCall, Unit


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
