"""Who has which device by everything that an exporter shows, so that tests can hold all of it to the truth."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from typing import Any

from exporter.config.http_file import HttpConfig
from exporter.top.columns import UNICODE
from exporter.top.screen import draw
from exporter.top.shown_devices import ShownExporter
from exporter.top.state import State
from exporter.top.transport import HttpTransport, ShownReader
from tests.support.exporter import Exporter

Held = tuple[str, str, str, str]  # namespace, pod, container and the device's UUID
WIDTH = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Who has what by each answer, and what it says of devices.

    Attributes:
        held: by the name of the answer (a path, or "top").
        states: the state of each device by /container/metrics and by `top`, by UUID.
        reasons: why devices are unknown, by /container/metrics.
        assigned: the entries of /debug/mapping for what was handed out.
        findings: those of `doctor`.
        summary: doctor's.
        used_by: namespace, pod, container and device of each process that has no reason to be nobody's.
        strangers: the same with the reason, of each that has one.
        table: what `top --once` prints, without spaces at the ends of lines.
        metrics: the text of /metrics.
    """

    held: Mapping[str, frozenset[Held]]
    states: Mapping[str, str]
    reasons: frozenset[str]
    assigned: tuple[Mapping[str, Any], ...]
    findings: tuple[Mapping[str, Any], ...]
    summary: str
    used_by: frozenset[Held]
    strangers: frozenset[tuple[str, str, str, str, str]]
    table: str
    metrics: str

    @property
    def problems(self) -> list[Mapping[str, Any]]:
        """The findings that are no "ok"."""
        return [finding for finding in self.findings if finding["level"] != "ok"]

    @property
    def unmatched(self) -> list[Mapping[str, Any]]:
        """The entries of what was handed out, but names no device."""
        return [entry for entry in self.assigned if not entry["matched"]]


# counters go on for pods that are gone
_COUNTERS = r"(?!\w*_total\{|pod_gpu_idle_since)"


async def told_by(exporter: Exporter, *, with_counters: bool = True) -> Told:
    """All answers of an exporter, one after another. Everything that has owners is read.

    `with_counters`: the accounts are read, too. They keep pods that are gone.
    """
    accounts = "" if with_counters else _COUNTERS
    rows = json.loads((await exporter.get("/container/metrics"))[1])
    mapping = json.loads((await exporter.get("/debug/mapping"))[1])
    status, processes = await exporter.get("/processes")
    found = json.loads(processes) if status == 200 else []
    metrics = (await exporter.get("/metrics"))[1]
    shown = await asyncio.to_thread(_top_of, exporter.base)
    drawn = draw(shown, State(), WIDTH, UNICODE).lines
    held = {
        "/gpu/metrics": of_page(await exporter.page()),
        "/container/metrics": frozenset(_of_row(row) for row in rows if row["pod"]),
        "/": of_html((await exporter.get("/"))[1]),
        "top": of_top(shown),
        "/debug/mapping, assigned": frozenset(
            (each["namespace"], each["pod"], each["container"], each["uuid"])
            for each in mapping["assigned"]
            if each["matched"] and not each["reason"]
        ),
        "/debug/mapping, seen": frozenset(
            (owner["namespace"], owner["pod"], owner["container"], seen["uuid"])
            for seen in mapping["seen"]
            for owner in seen["owners"]
        ),
        "/metrics": of_page("".join(re.findall(rf"^{accounts}pod_gpu_\w+\{{.*UUID=.*\n", metrics, re.MULTILINE))),
    }
    return Told(
        held=held,
        states={row["device_uuid"]: row["state"] for row in rows},
        reasons=frozenset(row["state_reason"] for row in rows if row.get("state_reason")),
        assigned=tuple(mapping["assigned"]),
        findings=tuple(mapping["doctor"]["findings"]),
        summary=mapping["doctor"]["summary"],
        used_by=frozenset(_of_process(each) for each in found if not each["reason"]),
        strangers=frozenset((*_of_process(each), each["reason"]) for each in found if each["reason"]),
        table="\n".join("".join(text for text, _ in line).rstrip() for line in drawn),
        metrics=metrics,
    )


def of_page(text: str) -> frozenset[Held]:
    """The owners of a page's samples; a device's UUID has any label, as vendors name it."""
    held: set[Held] = set()
    for labels in set(re.findall(r"^\w+\{(.*)\}", text, re.MULTILINE)):
        label = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
        if label.get("pod"):
            uuid = label.get("UUID") or label.get("vdie_id") or label["uuid"]
            held.add((label["namespace"], label["pod"], label["container"], uuid))
    return frozenset(held)


def of_html(page: str) -> frozenset[Held]:
    """The holders of the page for people: of a device that one container holds, and of each holder's own line."""
    held: set[Held] = set()
    for key in re.findall(r'<tr role="row"[^>]* data-key="([^"]*)"', page):
        _kind, _node, uuid, _instance, owner, *_rest = f"{unescape(key)}  ".split(" ")
        if owner.strip("/"):
            namespace, pod, container = owner.split("/")
            held.add((namespace, pod, container, uuid))
    return frozenset(held)


def _of_row(row: Mapping[str, Any]) -> Held:
    return row["namespace"], row["pod"], row["container"], row["device_uuid"]


def _of_process(process: Mapping[str, Any]) -> Held:
    container = process["container"] or {}
    names = (container.get(name, "") for name in ("namespace", "pod", "container"))
    namespace, pod, name = names
    return namespace, pod, name, process["device_uuid"]


def _top_of(base: str) -> ShownExporter:
    return ShownReader([HttpTransport(base, HttpConfig())]).ask("devices").shown


def of_top(shown: ShownExporter) -> frozenset[Held]:
    return frozenset(
        (holder.namespace, holder.pod, holder.container, device.uuid)
        for device in shown.devices
        for holder in device.holders
        if holder.holds
    )
