"""The families of the process itself, beside those of Prometheus' own client."""

import resource
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import pytest
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from exporter.exposition.families import render
from exporter.own_process import FAMILIES, OwnProcess


def parsed(text: bytes) -> Mapping[str, Metric]:
    return {found.name: found for found in text_string_to_metric_families(text.decode())}


def said(process: OwnProcess) -> Mapping[str, Metric]:
    return parsed(render(process.filled()))


def test_they_are_those_of_prometheus_own_client() -> None:
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    ours, theirs = said(OwnProcess()), parsed(generate_latest(registry))
    assert ours.keys() == theirs.keys()
    for name, found in theirs.items():
        same = ours[name]
        assert (same.type, same.documentation) == (found.type, found.documentation)
        assert [(each.name, each.labels) for each in same.samples] == [
            (each.name, each.labels) for each in found.samples
        ]
        values = zip([each.value for each in same.samples], [each.value for each in found.samples], strict=True)
        # a moment lies between the two
        assert all(value == pytest.approx(other, rel=0.1, abs=100) for value, other in values), name


def test_without_proc_there_is_less(tmp_path: Path) -> None:
    known = said(OwnProcess(tmp_path))
    missing = {"process_virtual_memory_bytes", "process_resident_memory_bytes", "process_start_time_seconds"}
    assert {family.name.removesuffix("_total") for family in FAMILIES} - known.keys() == {*missing, "process_open_fds"}


def test_no_limit_is_no_number() -> None:
    with patch("resource.getrlimit", return_value=(resource.RLIM_INFINITY, resource.RLIM_INFINITY)):
        assert "process_max_fds" not in said(OwnProcess())
