"""The rules of deploy/prometheus/rules, read as Prometheus reads them."""

import json
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
def groups_of(path: Path) -> Sequence[dict[str, Any]]:
    """All groups of a file."""
    of_file: Sequence[dict[str, Any]] = quick_yaml.load(path.read_text())["groups"]
    return of_file


@cache
def groups() -> Sequence[dict[str, Any]]:
    """All groups of all files."""
    return [group for path in FILES for group in groups_of(path)]


def write_needed(file: Path, text: str, paths: Sequence[Path] = FILES) -> list[str]:
    """Write a file of rules: those of `paths` that the text names, and all that these ask for: records, other alerts.

    The other rules would take nearly all of the time, since promtool evaluates each rule for each of its tests. Returns
    the groups' names in their order.
    """
    of_paths = [group for path in paths for group in groups_of(path)]
    texts: dict[str, list[str]] = {}
    for group in of_paths:
        for rule in group["rules"]:
            texts.setdefault(name_of(rule), []).append(json.dumps(rule))
    needed: set[str] = set()
    more = _names(text) & texts.keys()
    while more:
        needed |= more
        more = _names(" ".join(rule for name in more for rule in texts[name])) & texts.keys() - needed
    kept = [{**group, "rules": [rule for rule in group["rules"] if name_of(rule) in needed]} for group in of_paths]
    kept = [group for group in kept if group["rules"]]
    file.write_text(json.dumps({"groups": kept}))
    return [group["name"] for group in kept]


def _names(text: str) -> set[str]:
    return set(re.findall(r"[\w:]+", text))


def name_of(rule: Mapping[str, Any]) -> str:
    """An alert's name, or a record's."""
    name: str = rule.get("alert") or rule["record"]
    return name


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
