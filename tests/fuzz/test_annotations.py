"""Annotations that nobody wrote: none raises, and none names a GPU that is not in it."""

import json

import pytest

from exporter.ownership.allocators.allocator_table import Annotation
from exporter.ownership.allocators.said import LONGEST
from tests.fuzz import annotations


# issue 24, "Must show" 4
def test_twenty_thousand_mutated_annotations_break_no_property() -> None:
    """`make fuzz` tries more of them."""
    words = annotations.check_mutated(20_000, seed=24)
    assert words > 600, "too many of them are broken to show anything"


# issue 24, "Must show" 4
@pytest.mark.parametrize("annotation", annotations.ANNOTATIONS, ids=lambda annotation: annotation.key)
def test_an_annotation_of_256_kib_is_not_read(annotation: Annotation) -> None:
    for piece in ("[", "{", ";", ":", ",", "|", '{"0":', f"{annotations.A},NVIDIA,1,2:", "card1,", "x"):
        text = piece * (256 * 1024 // len(piece))
        assert not annotations.check(annotation, [text], "M")


# issue 24, "Must show" 4
@pytest.mark.parametrize("annotation", annotations.ANNOTATIONS, ids=lambda annotation: annotation.key)
@pytest.mark.parametrize(
    "text",
    [
        *(piece * 500 for piece in (f"{annotations.A},,1,2:", ";", "card1,", "card1|", "Ascend910-1,", "card1/")),
        f'{{"gpu":[{",".join(["{}"] * 500)}]}}',
        json.dumps({"0": dict.fromkeys(map(str, range(400)), 1)}),
    ],
)
def test_a_text_that_is_read_names_few_enough_devices(annotation: Annotation, text: str) -> None:
    """What the text names is counted before it is read: a device takes some 10 µs."""
    assert len(text) < LONGEST
    assert not annotations.check(annotation, [text], "M")
