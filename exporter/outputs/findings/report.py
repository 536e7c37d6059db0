"""What `doctor` has to say, as data and as a report for a terminal. Pure.

The findings themselves are made in of_sources.py and of_devices.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

MOST_NAMED = 5


class Level(Enum):
    """How bad a finding is. A PROBLEM costs what the program is for: samples, or the owner of a device that is held."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is so with one thing that doctor looked at. `remedy` is "" where there is nothing to do.

    `devices` are the names of those that it is true of, where they are several.
    """

    level: Level
    about: str
    says: str
    remedy: str = ""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings, after a summary in one line."""

    summary: str
    findings: tuple[Finding, ...]

    def works(self, *, strict: bool = False) -> bool:
        """Whether there are samples, and an owner for every device that is held; `strict` counts warnings, too."""
        bad = (Level.PROBLEM, Level.WARNING) if strict else (Level.PROBLEM,)
        return not any(finding.level in bad for finding in self.findings)

    def render(self) -> str:
        """The report as lines for a terminal. Control characters in it are written as escapes."""
        lines = [f"{self.summary}.", ""]
        for finding in self.findings:
            lines.append(f"{finding.level.value:8} {finding.about}: {finding.says}")
            lines += [f"{'':12}{device}" for device in finding.devices[:MOST_NAMED]]
            if len(finding.devices) > MOST_NAMED:
                lines.append(f"{'':12}and {len(finding.devices) - MOST_NAMED} more (/debug/mapping has all)")
            if finding.remedy:
                lines.append(f"{'':8} -> {finding.remedy}")
        lines += ["", self._last_line()]
        return "".join(f"{_printable(line)}\n" for line in lines)

    def as_json(self) -> dict[str, Any]:
        """For /debug/mapping; `read_report` takes it back."""
        return {
            "summary": self.summary,
            "findings": [{**asdict(finding), "level": finding.level.value} for finding in self.findings],
        }

    def _last_line(self) -> str:
        if not self.works():
            return "The main job does not work, or not for every device: see above."
        warnings = sum(finding.level is Level.WARNING for finding in self.findings)
        return "The main job works." if not warnings else f"The main job works; warnings: {warnings}."


def read_report(answer: Mapping[str, Any]) -> Report:
    """A report from the JSON that `Report.as_json` made.

    Raises:
        KeyError, TypeError, ValueError: it is something else.
    """
    return Report(
        summary=str(answer["summary"]),
        findings=tuple(
            Finding(
                level=Level(entry["level"]),
                about=str(entry["about"]),
                says=str(entry["says"]),
                remedy=str(entry["remedy"]),
                devices=tuple(map(str, entry["devices"])),
            )
            for entry in answer["findings"]
        ),
    )


def grouped(findings: Iterable[tuple[str, Finding]]) -> tuple[Finding, ...]:
    """Findings of single devices, each with the device's name: those that say the same become one finding.

    Each takes the place of the first that it was made of.
    """
    same: dict[tuple[Level, str, str], list[tuple[str, Finding]]] = {}
    for device, finding in findings:
        same.setdefault((finding.level, finding.says, finding.remedy), []).append((device, finding))
    return tuple(
        of_all[0][1]
        if len(of_all) == 1
        else Finding(
            level=level,
            about=f"{len(of_all)} devices",
            says=says,
            remedy=remedy,
            devices=tuple(device for device, _ in of_all),
        )
        for (level, says, remedy), of_all in same.items()
    )


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
