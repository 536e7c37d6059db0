"""The diagnosis of `doctor`, as data and as a report for a terminal. Pure.

Tests: tests/outputs/test_findings.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from exporter.errors import Trouble
from exporter.lenient import Object
from exporter.wording import escaped

MOST_NAMED = 5


class Level(Enum):
    """The severity of a finding. PROBLEM: samples, or the owner of a held device, are missing."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of doctor about one thing, or about several `devices`. The trouble of an OK finding says what works."""

    level: Level
    about: str
    trouble: Trouble
    devices: tuple[str, ...] = ()


def fine(about: str, message: str, remedy: str = "") -> Finding:
    """A finding that nothing is wrong."""
    return Finding(Level.OK, about, Trouble("", message, remedy))


def warning(about: str, message: str, remedy: str = "") -> Finding:
    """A finding that something is odd, or less than it could be."""
    return Finding(Level.WARNING, about, Trouble("", message, remedy))


def problem(about: str, message: str, remedy: str) -> Finding:
    """A finding that the main job suffers."""
    return Finding(Level.PROBLEM, about, Trouble("", message, remedy))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings, after a summary in one line."""

    summary: str
    findings: tuple[Finding, ...]

    def works(self, *, strict: bool = False) -> bool:
        """Whether there are samples, and an owner for every device that is held; `strict` counts warnings, too."""
        bad = (Level.PROBLEM, Level.WARNING) if strict else (Level.PROBLEM,)
        return not any(finding.level in bad for finding in self.findings)

    def render(self, *, is_of_node: bool = True) -> str:
        """The report as lines for a terminal. Control characters in it are written as escapes.

        `is_of_node`: the report ends with the state of the main job.
        """
        lines = [f"{self.summary}.", ""]
        for finding in self.findings:
            lines.append(f"{finding.level.value:8} {finding.about}: {finding.trouble.message}")
            lines += [f"{'':12}{device}" for device in finding.devices[:MOST_NAMED]]
            if len(finding.devices) > MOST_NAMED:
                lines.append(f"{'':12}and {len(finding.devices) - MOST_NAMED} more (/debug/mapping has all)")
            if finding.trouble.remedy:
                lines.append(f"{'':8} -> {finding.trouble.remedy}")
        lines += ["", self._last_line()] if is_of_node else []
        return "".join(f"{escaped(line)}\n" for line in lines)

    def as_json(self) -> Object:
        """The report for /debug/mapping. `read_report` reads it back."""
        return {
            "summary": self.summary,
            "findings": [
                {
                    "level": finding.level.value,
                    "about": finding.about,
                    "says": finding.trouble.message,
                    "remedy": finding.trouble.remedy,
                    "devices": finding.devices,
                }
                for finding in self.findings
            ],
        }

    def _last_line(self) -> str:
        if not self.works():
            return "The main job does not work, or not for every device: see above."
        warnings = sum(finding.level is Level.WARNING for finding in self.findings)
        return "The main job works." if not warnings else f"The main job works; warnings: {warnings}."


def read_report(answer: Mapping[str, Any]) -> Diagnosis:
    """A report from the JSON of `Diagnosis.as_json`. Raises KeyError, TypeError or ValueError for anything else."""
    return Diagnosis(
        summary=str(answer["summary"]),
        findings=tuple(
            Finding(
                Level(entry["level"]),
                str(entry["about"]),
                Trouble("", str(entry["says"]), str(entry["remedy"])),
                tuple(map(str, entry["devices"])),
            )
            for entry in answer["findings"]
        ),
    )
