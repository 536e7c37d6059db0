"""What is expected of a bundle: written down once, corrected by hand, and compared from then on."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from exporter.bundle import archive
from exporter.bundle.bundle_command import bundle as bundle_command
from exporter.bundle.recording import PeerAnswer, RecordedMoment, Recording
from exporter.config.files import read_structured
from exporter.errors import ConfigError, ExporterError
from exporter.simulator.replay import expectation
from exporter.simulator.replay.expectation import check_bundle, expectation_beside
from tests.support.places import ROOT

GPU = "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9"


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle of two moments without an expectation. The test waits for no owner that differs."""
    monkeypatch.setattr(expectation, "_PATIENCE_SECONDS", 0.2)
    path = tmp_path / "report.tar.gz"
    shutil.copy(ROOT / "tests/bundles/kubelet-1.20.tar.gz", path)
    return path


def test_the_owners_of_now_are_written_down_once(bundle: Path) -> None:
    is_right, (line,) = check_bundle(bundle)
    written = expectation_beside(bundle)
    assert is_right
    assert written == bundle.with_name("report.owners.yaml")
    assert line.startswith(f"Wrote {written}: the owners that the program says now, 7 devices at 2 moments")
    assert check_bundle(bundle) == (
        True,
        [f"{bundle}: the owners of 7 devices at 2 moments are as report.owners.yaml expects"],
    )


def test_what_is_not_right_is_told(bundle: Path) -> None:
    check_bundle(bundle)
    path = expectation_beside(bundle)
    right = path.read_text().replace("ml/one-gpu-gpu-node-1/main", "ml/another/main")
    path.write_text(right)
    is_right, lines = check_bundle(bundle)
    assert not is_right
    assert lines == [
        f"moment 2, {GPU}: expected ml/another/main, ok; now ml/one-gpu-gpu-node-1/main, ok",
        "1 difference to report.owners.yaml -> mend the program, or correct that file where it is wrong",
    ]
    assert path.read_text() == right
    check_bundle(bundle, is_update=True)
    assert path.read_text() != right


def test_json_is_read_and_counts_for_every_moment(bundle: Path) -> None:
    path = bundle.with_name("report.owners.json")
    path.write_text(json.dumps({"every moment": {GPU: {"owners": []}}}))
    is_right, lines = check_bundle(bundle)
    assert not is_right
    assert f"moment 1, {GPU}: expected nobody; now ml/four-gpus-gpu-node-1/main, ok" in lines
    assert any(line.startswith("moment 2, GPU-4cf8db2d") and "expected no such device" in line for line in lines)


def test_a_bundle_of_what_the_exporter_said_alone_is_not_played(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    answer = PeerAnswer(peer="kubernetes", name="kubectl", question="/api/v1/namespaces/a/pods/b", body=b"{}")
    moment = RecordedMoment(at_seconds=1.0, answers=(answer,), outputs={"/gpu/metrics": b"x 1\n"})
    with path.open("wb") as file:
        archive.write(Recording(made_by="1", settings={}, moments=(moment,)), file)
    with pytest.raises(ExporterError, match=r"only what the exporter said, .* -> unpack the bundle"):
        check_bundle(path)
    assert not expectation_beside(path).exists()


def test_a_bundle_taken_again_is_another_one(bundle: Path) -> None:
    expectation_beside(bundle).write_text(f"every moment: {{GPU-of-another-name: {{owners: [{GPU}]}}}}")
    is_right, (line,) = check_bundle(bundle)
    assert not is_right
    assert line.endswith(
        "has none of the bundle's devices: it is of another bundle -> write it anew with `bundle test FILE --update`"
    )


@pytest.mark.parametrize("content", ["- a list", "moments: [{}]", "moments: [1, 2]", "every moment: 1"])
def test_what_is_no_expectation_is_refused(bundle: Path, content: str) -> None:
    bundle.with_name("report.owners.yaml").write_text(content)
    with pytest.raises(ConfigError, match="an entry for each of the bundle's 2 -> write it anew"):
        check_bundle(bundle)


def test_the_file_can_be_read_by_people(bundle: Path) -> None:
    check_bundle(bundle)
    path = expectation_beside(bundle)
    assert path.read_text().startswith("# The owners of each device in report.tar.gz")
    content = read_structured(str(path), "--test")
    assert isinstance(content, dict)
    assert content["moments"][0][GPU] == {"owners": ["ml/four-gpus-gpu-node-1/main"], "health": "ok"}


def test_the_command_ends_with_what_it_says(bundle: Path) -> None:
    first = CliRunner().invoke(bundle_command, ["test", str(bundle)])
    assert (first.exit_code, "the program says now" in first.output) == (0, True)
    path = expectation_beside(bundle)
    path.write_text(path.read_text().replace("health: ok", "health: failing"))
    second = CliRunner().invoke(bundle_command, ["test", str(bundle)])
    assert second.exit_code == 1
    assert second.output.count("\n") == 11  # each device of each moment, and how many
    third = CliRunner().invoke(bundle_command, ["test", str(bundle), "--update"])
    assert (third.exit_code, path.read_text().count("health: ok")) == (0, 10)
