"""What a reader of the page has before them: the rows of its table, and what they are to be by the objects."""

import math
from datetime import datetime
from typing import Any

from exporter.model.states import is_before, last_xid, used_by
from tests.support.chromium import Tab

# what stands in the pod's place where nobody holds the device
WITHOUT_POD = {
    "free": "free",
    "failing": "failing",
    "cut": "cut into instances",
    "outside": "used around Kubernetes",
    "unknown": "not known",
}
UPDATED = "document.getElementById('updated').textContent"
# All rows as {title of the column: text}. Rows that share a name (rowspan) all have it; what is hidden is not text.
_READ = """
(() => {
  const text = (cell) => cell.innerText.replace(/\\s+/g, " ").trim();
  const titles = [...document.querySelectorAll("#devices thead th")].map((each) => each.textContent);
  const rows = [];
  for (const body of document.querySelectorAll("#devices tbody")) {
    let shared = [];
    for (const row of body.rows) {
      let cells = [...row.cells].map(text);
      if (cells.length < titles.length) cells = [...shared, ...cells];
      shared = cells.slice(0, titles.length - 7);
      rows.push(Object.fromEntries(cells.map((cell, number) => [titles[number], cell])));
    }
  }
  return rows;
})()
"""


async def opened(tab: Tab, url: str) -> None:
    """Open a page, and wait until its script has made the table once."""
    await tab.open(url)
    await tab.until(f"{UPDATED} !== ''")


async def read(tab: Tab) -> list[dict[str, str]]:
    """The rows as a reader sees them."""
    rows: list[dict[str, str]] = await tab.run(_READ)
    return rows


def expected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the rows must say, by the objects of /container/metrics: each column the texts that have to be in it."""
    devices = [(row["node_name"], row["device_uuid"], row.get("mig_instance_id")) for row in rows]
    return [
        _of(row, is_first=devices.index(of) == number)
        for number, (row, of) in enumerate(zip(rows, devices, strict=True))
    ]


def _of(row: dict[str, Any], *, is_first: bool) -> dict[str, Any]:
    empty = row["entity"] == "mig-parent"
    percent = row["gpu_utilization"]
    if percent is None and row["graphics_engine_active"] is not None:
        percent = row["graphics_engine_active"] * 100
    used = row["framebuffer_used"]
    name = f"GPU {row['device_id']}" + (f" / MIG {row['mig_instance_id']}" if "mig_instance_id" in row else "")
    pod = [row["pod"], row["container"]] if row["pod"] else [WITHOUT_POD[row["state"]]]
    if row["pod"] and row["state"] == "idle":
        pod.append(f"held but idle{idle_for(row)}")
    if is_first:
        pod.append(used_by(row))
    xid, is_why = last_xid(row)
    words = f"{row['health']}: XID {xid}" if is_why else row["health"]
    health = "" if row["health"] == "ok" else words
    return {
        "GPU": [name, row["model_name"], row["device_uuid"], row.get("mig_profile", ""), in_all(row), health]
        + ([f"last XID {xid}"] if xid and not is_why else []),
        "Pod": pod,
        "Namespace": [row["namespace"]],
        "Workload": [row.get("workload_name", ""), row.get("workload_kind", "")],
        "Utilisation": [said(percent, "%", empty=empty), "before" if percent is not None and is_before(row) else ""],
        "Memory": ["" if empty else "unknown"] if used is None else [f"{rounded(used / 1024 * 10) / 10:.1f}", "GiB"],
        "Power": [said(row["power_usage"], "W", empty=empty)],
        "Temperature": [said(row["temperature"], "°C", empty=empty)],
    }


# issue 18, line 5
def in_all(row: dict[str, Any]) -> str:
    """What a shared device does as a whole, of which its first row tells."""
    whole = row.get("whole_device", {})
    used = whole.get("framebuffer_used")
    parts = [
        said(whole.get("gpu_utilization"), "%", empty=True),
        "" if used is None else f"{rounded(used / 1024 * 10) / 10:.1f} GiB",
        said(whole.get("power_usage"), "W", empty=True),
    ]
    return f"in all {', '.join(filter(None, parts))}" if any(parts) else ""


def said(value: float | None, unit: str, *, empty: bool) -> str:
    return ("" if empty else "unknown") if value is None else f"{rounded(value)} {unit}"


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
    if len(seen) != len(wanted):
        return [f"{len(seen)} rows, {len(wanted)} objects"]
    return [
        f"row {number}, {title}: {row[title]!r} is to have {texts}"
        for number, (row, want) in enumerate(zip(seen, wanted, strict=True))
        for title, texts in want.items()
        if not all(text in row[title] for text in texts) or bool(row[title]) is not any(texts)
    ]
