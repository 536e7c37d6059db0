"""The exporter's page as a stranger reads it: samples by family and labels. Nothing here is the exporter's own code."""

import re
from collections.abc import Mapping
from typing import NamedTuple

_SAMPLE = re.compile(r"(?P<family>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: \d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Sample(NamedTuple):
    """A sample."""

    family: str
    labels: Mapping[str, str]
    value: float

    @property
    def pod(self) -> str:
        """The owner's pod; "" for nobody."""
        return self.labels.get("pod", "")


def read_page(text: str) -> list[Sample]:
    """Read all samples. Raises ValueError: a line is none."""
    samples = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        matched = _SAMPLE.fullmatch(line)
        if not matched:
            message = f"no sample: {line[:200]!r}"
            raise ValueError(message)
        labels = {name: re.sub(r'\\[\\"n]', _unescaped, text) for name, text in _LABEL.findall(matched["labels"] or "")}
        samples.append(Sample(matched["family"], labels, float(matched["value"])))
    return samples


def _unescaped(matched: re.Match[str]) -> str:
    return _ESCAPES[matched.group()]
