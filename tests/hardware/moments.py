"""A second of a run, as it lies in its folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hardware.pages import Sample, read_page
from tests.hardware.smi import SmiLog, read_log

# After a phase has begun: the kubelet is asked once a second, and GPM and utilisation look back as far.
SETTLES_SECONDS = 3.0
# Before it ends: the load's last second is no whole one.
ENDS_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A second's answers. Times are in the middle of asking and answer; what could not be had is empty.

    `no_processes` says why the exporter shows no processes.
    """

    at: float
    samples: Sequence[Sample]
    smi_at: float
    smi: SmiLog | None
    processes: Sequence[Mapping[str, Any]]
    no_processes: str = ""


def read_moments(folder: Path) -> list[Moment]:
    """The moments of a run, in their order. One that was cut off by the end of the run is left out."""
    complete = sorted((folder / "moments").glob("*/moment.json"))
    return [_moment(path.parent, json.loads(path.read_text())) for path in complete]


def _moment(folder: Path, times: Mapping[str, Sequence[float]]) -> Moment:
    smi_from, smi_until = times["smi"]
    page_from, page_until, status = times["/gpu/metrics"]
    try:
        smi = read_log((folder / "smi.xml").read_bytes())
    except ValueError:
        smi = None
    processes = (folder / "processes.json").read_text()
    is_there = times["/processes"][-1] == _OK
    return Moment(
        at=(page_from + page_until) / 2,
        samples=_samples(folder / "gpu_metrics.txt") if status == _OK else (),
        smi_at=(smi_from + smi_until) / 2,
        smi=smi,
        processes=json.loads(processes) if is_there else (),
        no_processes="" if is_there else processes,
    )


_OK = 200


def _samples(file: Path) -> Sequence[Sample]:
    """The samples of a page; none if a line of it cannot be read, so that the second counts as one without a page."""
    try:
        return read_page(file.read_text())
    except ValueError:
        return ()
