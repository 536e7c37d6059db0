"""The rules of deploy/prometheus/rules, read as Prometheus reads them."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import quick_yaml
from tests.support.places import ROOT

PROMETHEUS = ROOT / "deploy" / "prometheus"
# by which the other files' groups are evaluated
FILES = sorted((PROMETHEUS / "rules").glob("*.yaml"), key=lambda path: (path.stem != "recording", path.name))
_STRING = r'"(?:[^"\\]|\\.)*"'
_LABELS = re.compile(r"\{[^{}]*\}")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\b(?!\s*\()")
_WORDS = {"and", "or", "unless", "offset", "bool", "by", "on", "without", "ignoring", "group_left", "group_right"}


@cache
def groups() -> Sequence[dict[str, Any]]:
    """All groups of all files."""
    return [group for path in FILES for group in quick_yaml.load(path.read_text())["groups"]]


def rules() -> Sequence[dict[str, Any]]:
    """All rules."""
    return [rule for group in groups() for rule in group["rules"]]


@cache
def alerts() -> Mapping[str, dict[str, Any]]:
    """The alerts, by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


@cache
def records() -> Mapping[str, str]:
    """The expressions that are recorded, by name."""
    return {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


def of_group(name: str) -> set[str]:
    """The names that a group records."""
    return {
        rule["record"] for group in groups() if group["name"] == name for rule in group["rules"] if "record" in rule
    }


def metrics(expression: str) -> set[str]:
    """The names of metrics in a PromQL expression: neither labels, nor functions, nor words of the language."""
    bare = _LABELS.sub(" ", re.sub(_STRING, '""', expression))
    bare = re.sub(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)|\[[^\]]*\]|\"\"", " ", bare)
    bare = re.sub(r"\boffset\s+\w+|(?<![\w:])[0-9][\w.]*", " ", bare)
    # an aggregation may stand before its labels: sum by (...) (...)
    bare = re.sub(r"\b(?:sum|max|min|count|group|topk)\b(?=\s+\()", " ", bare)
    return set(_NAME.findall(bare)) - _WORDS


def run(promtool: Path, *arguments: str | Path) -> str:
    """What promtool says; it must be content."""
    ended = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
