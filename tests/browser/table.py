"""What a reader of the page has before them: the rows of its table, and what they are to be by the objects."""

import math
from datetime import datetime
from typing import Any

from exporter.dividing.figures import of_device, of_holder
from exporter.model.device_row import from_object
from exporter.model.states import WORDS, DeviceState
from tests.support.chromium import Tab

UPDATED = "document.getElementById('updated').textContent"
# All lines as {column: text}; `kind` is that of the line, and `folds` whether others are below it.
_READ = """
[...document.querySelectorAll("#devices tbody tr")].map((row) => Object.fromEntries([
  ["kind", row.classList[0]],
  ["folds", row.querySelector(".fold")?.getAttribute("aria-expanded") || ""],
  ...[...row.cells].map((cell) => [cell.classList[0], cell.innerText.replace(/\\s+/g, " ").trim()]),
]))
"""


async def opened(tab: Tab, url: str) -> None:
    """Open a page, and wait until its script has made the table once."""
    await tab.open(url)
    await tab.until(f"{UPDATED} !== ''")


async def read(tab: Tab) -> list[dict[str, str]]:
    """The lines as a reader sees them."""
    lines: list[dict[str, str]] = await tab.run(_READ)
    return lines


def of_objects(lines: list[dict[str, str]]) -> list[dict[str, str]]:
    """The lines that stand for one object: those below which nothing is, and no GPU that is cut."""
    return [line for line in lines if not line["folds"]]


def expected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the lines must say, by the objects of /container/metrics: each column the texts that have to be in it."""
    devices = [(row["node_name"], row["device_uuid"], row.get("mig_instance_id")) for row in rows]
    return [
        _of(row, is_owner=devices.count(device) > 1)
        for row, device in zip(rows, devices, strict=True)
        if row["entity"] != "mig-parent"
    ]


def _of(row: dict[str, Any], *, is_owner: bool) -> dict[str, Any]:
    read_row = from_object(row)
    figures = of_holder(read_row, is_alone=not is_owner)
    watts, celsius = figures.power_watts, figures.temperature_celsius
    # the line of a device has its own memory, whatever is measured of its holder
    used = figures.memory_used_mib if is_owner else of_device([read_row]).memory_used_mib
    xid, is_why = read_row.last_xid, read_row.is_xid_why
    name = f"MIG {row['mig_instance_id']}" if "mig_instance_id" in row else f"GPU {row['device_id']}"
    words = f"{row['health']}: XID {xid}" if is_why else row["health"]
    others = "used by others, too" if read_row.users_in_words and not is_owner else ""
    idle = idle_for(row) if row["state"] == "idle" else ""
    return {
        "gpu": [row["container"]] if is_owner else [name, row.get("mig_profile", "")],
        "state": [
            f"{WORDS[DeviceState(row['state'])]}{idle}",
            "before" if read_row.is_before or (read_row.is_older and not is_owner) else "",
        ],
        "pod": [row["pod"] and f"{row['namespace']}/{row['pod']}", others],
        "workload": [row.get("workload_name", ""), row.get("workload_kind", "")],
        "utilisation": [said(figures.utilization_percent, "%")],
        "memory": ["unknown"] if used is None else [f"{rounded(used / 1024 * 10) / 10:.1f}", "GiB"],
        "power": [] if is_owner or row["entity"] == "mig" else [said(watts, "W")],
        "temperature": [] if is_owner else [said(celsius, "°C")],
        "health": [] if is_owner else [words, f"last XID {xid}" if xid and not is_why else ""],
    }


def said(value: float | None, unit: str) -> str:
    return "unknown" if value is None else f"{rounded(value)} {unit}"


def idle_for(row: dict[str, Any]) -> str:
    if row["idle_since"] is None:
        return ""
    now, since = (datetime.fromisoformat(row[name]) for name in ("timestamp", "idle_since"))
    minutes = int((now - since).total_seconds() // 60)
    if minutes < 1:
        return ""
    return (
        f", {minutes} min" if minutes < 60 else f", {minutes // 60} h" if minutes < 2_880 else f", {minutes // 1440} d"
    )


def rounded(value: float) -> int:
    return math.floor(value + 0.5)


def differences(seen: list[dict[str, str]], wanted: list[dict[str, Any]]) -> list[str]:
    """Where the page says something else."""
    seen = of_objects(seen)
    if len(seen) != len(wanted):
        return [f"{len(seen)} lines, {len(wanted)} objects"]
    return [
        f"row {number}, {title}: {row[title]!r} is to have {texts}"
        for number, (row, want) in enumerate(zip(seen, wanted, strict=True))
        for title, texts in want.items()
        if not all(text in row[title] for text in texts) or bool(row[title]) is not any(texts)
    ]
