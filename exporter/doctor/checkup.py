"""A look at a node for `doctor`: the running exporter's look, or a look that asks every source in its place.

Tests: tests/doctor/test_doctor.py.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from exporter import __version__
from exporter.config.files import as_yaml
from exporter.config.named_files import read_node_files
from exporter.config.node_settings import Config
from exporter.doctor import conformance
from exporter.doctor.junit import as_junit
from exporter.errors import ExporterError
from exporter.model.slices import at_once
from exporter.node.build import make_node
from exporter.node.first_look import look_at_all
from exporter.node.role import diagnose
from exporter.outputs import gpu_metrics, mapping, own_metrics
from exporter.outputs.complaints import why_not
from exporter.outputs.diagnosis import Diagnosis, Finding
from exporter.outputs.output import LOOK_AT_NODE, Look, Need

_NEEDS = LOOK_AT_NODE | {Need.DIAGNOSIS, Need.VERDICTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """The result of one look at a node, by the exporter at `where`, or by doctor in its place if that is "".

    `files` are what evidence is made of, by name. They have no token and no password.
    """

    report: Diagnosis
    files: Mapping[str, bytes]
    where: str = ""

    def remarked(self, *findings: Finding) -> "Checkup":
        """A copy of this checkup, with these findings first."""
        return replace(self, report=replace(self.report, findings=(*findings, *self.report.findings)))

    def with_evidence(self, path: Path) -> "Checkup":
        """Write the evidence for Kubernetes' AI conformance, as YAML at `path` and as JUnit (.xml) beside it.

        Return a copy of this checkup, with the findings of the evidence.

        Raises:
            ExporterError: a file cannot be written, both would be the same file, or the exporter is of another version,
                whose answers cannot be read.
        """
        junit_path = path.parent / f"{path.stem}.xml"
        if path.suffix.lower() == junit_path.suffix:
            raise ExporterError(
                f"--conformance: {path} is the name of the JUnit file beside the YAML; give it another name, such as"
                f" {path.stem}.yaml"
            )
        where = self.where or "doctor, in its place"
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        of_exporter = {"where": where, "version": __version__, "moment": moment}
        try:
            judged = conformance.judge(where, self.files)
            form = conformance.as_form(judged, **of_exporter, files=(path.name, junit_path.name))
            path.write_text(as_yaml(form), encoding="utf-8")
            junit_path.write_bytes(as_junit(judged, **of_exporter))
        except OSError as error:
            raise ExporterError(f"--conformance: {error.filename} cannot be written: {error.strerror}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise ExporterError(f"--conformance: {where} is of another version than doctor") from error
        return self.remarked(*(requirement.finding for requirement in judged))


async def examine(config: Config) -> Checkup:
    """Ask every source once, each with its own timeout. Watches and inventories get FIRST_WORD_SECONDS.

    Raises:
        ConfigError: a file that the configuration names cannot be used.
    """
    node = make_node(config, read_node_files(config))
    try:
        snapshot = await look_at_all(node, _NEEDS)
        own = at_once(own_metrics.render(Look(snapshot=snapshot, telemetry=node.handover.telemetry)))
        page = gpu_metrics.render(snapshot)
    finally:
        await node.close()
    return Checkup(
        report=diagnose(config, snapshot),
        files={
            "mapping.json": _json(mapping.debug(snapshot)),
            "gpu-metrics.prom": b"".join(page[0]) if page else why_not(snapshot).encode(),
            "metrics.prom": b"".join(own),
        },
    )


def _json(content: object) -> bytes:
    return json.dumps(content, indent=2).encode("utf-8", "replace")
