"""What a look at a node amounts to: the findings of `doctor`, which the running exporter shows on /debug/mapping."""

from collections.abc import Iterator, Mapping
from typing import Any

from exporter import __version__
from exporter.config.node import Config
from exporter.model.snapshot import Snapshot
from exporter.outputs.findings.of_devices import of_attribution, of_devices, summary
from exporter.outputs.findings.of_sources import of_kubelet, of_other_sources, of_pages
from exporter.outputs.findings.report import Finding, Level, Report


def diagnose(config: Config, snapshot: Snapshot) -> Report:
    """Everything worth saying, the sources first."""
    return Report(
        summary=summary(snapshot),
        findings=(
            *_of_settings(config),
            *of_kubelet(snapshot),
            *of_pages(snapshot),
            *of_other_sources(snapshot),
            *_of_device_files(config, snapshot),
            *of_attribution(snapshot),
            *of_devices(snapshot),
        ),
    )


def as_json(config: Config, snapshot: Snapshot) -> Mapping[str, Any]:
    """What /debug/mapping says beside the mapping: the program, its settings (no secret is in them), and the report."""
    return {
        "version": __version__,
        "settings": config.shown(),
        "doctor": diagnose(config, snapshot).as_json(),
    }


def _of_settings(config: Config) -> Iterator[Finding]:
    for doubt in config.doubts:
        yield Finding(level=Level.WARNING, about="settings", says=doubt.says, remedy=doubt.remedy)


def _of_device_files(config: Config, snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.device_files is not None:
        # nobody else carries it: most who are asked have no driver, or are never asked
        from exporter.outputs.findings.of_device_files import of_device_files  # noqa: PLC0415

        yield from of_device_files(snapshot.device_files, are_wanted=config.nvml.mode != "off")
