"""Every bundle of this folder is played, and the owners of each device compared with what is right.

To mend a report: put the bundle here, run `pod-gpu-metrics-exporter bundle test FILE`, correct the file that it writes
by what the node really was, and mend the program until this test passes.
"""

from pathlib import Path

import pytest

from exporter.simulator.replay.expectation import check_bundle, expectation_beside
from tests.support.components import real

BUNDLES = sorted(Path(__file__).parent.glob("*.tar.gz"))


@pytest.mark.parametrize("bundle", BUNDLES, ids=[bundle.name.removesuffix(".tar.gz") for bundle in BUNDLES])
def test_owners_are_right(bundle: Path) -> None:
    real("gcc")  # NVML's answers are played by a library that it builds
    assert expectation_beside(bundle).exists(), (
        f"nobody said who owns what in it: pod-gpu-metrics-exporter bundle test {bundle} writes it down; correct it"
    )
    is_right, lines = check_bundle(bundle)
    assert is_right, "\n".join(lines)


def test_there_are_bundles() -> None:
    assert len(BUNDLES) > 5
