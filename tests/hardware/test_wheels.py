"""Which wheels a bare machine's Python can use, and how they get there."""

import sys
import zipfile
from pathlib import Path

import pytest

from tests.hardware.wheels import NEEDED, fits, lacking, unpack


@pytest.mark.parametrize(
    ("name", "fits_312", "fits_311"),
    [
        ("click-8.5.1-py3-none-any.whl", True, True),
        ("old-1-py2-none-any.whl", False, False),
        ("both-1-py2.py3-none-any.whl", True, True),
        ("msgspec-0.22.0-cp312-cp312-manylinux2014_x86_64.manylinux_2_28_x86_64.whl", True, False),
        ("bcrypt-5.0.0-cp39-abi3-manylinux_2_28_x86_64.whl", True, True),
        ("new-1.0-cp312-abi3-manylinux_2_28_x86_64.whl", True, False),
        ("grpcio-1.85.1-cp312-cp312-manylinux_2_17_aarch64.whl", False, False),
        ("alpine-1-cp312-cp312-musllinux_1_2_x86_64.whl", False, False),
        ("free-1-cp312-cp312t-manylinux_2_28_x86_64.whl", False, False),
        ("with-build-1-2-py3-none-any.whl", True, True),
        ("README.md", False, False),
    ],
)
def test_a_wheel_fits_by_its_name(name: str, *, fits_312: bool, fits_311: bool) -> None:
    assert fits(name, (3, 12), "x86_64") == fits_312
    assert fits(name, (3, 11), "x86_64") == fits_311


def test_wheels_are_unpacked_for_pythonpath(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in ("good-1-py3-none-any.whl", "other-1-cp27-cp27mu-manylinux1_x86_64.whl"):
        with zipfile.ZipFile(wheels / name, "w") as wheel:
            wheel.writestr(f"{name.partition('-')[0]}_module/__init__.py", "value = 1\n")
    assert unpack(wheels, tmp_path / "packages") == ["good-1-py3-none-any.whl"]
    assert [path.name for path in (tmp_path / "packages").iterdir()] == ["good_module"]


def test_what_is_lacking_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lacking() == []
    monkeypatch.setitem(sys.modules, "msgspec", None)
    assert lacking() == ["msgspec"]
    monkeypatch.setattr("google.protobuf.__version__", "4.21.12")
    assert lacking() == ["msgspec", "google.protobuf (it has 4.21.12)"]


def test_each_dependency_of_the_exporter_is_looked_for() -> None:
    lock = (Path(__file__).parents[2] / "requirements.lock").read_text()
    packages = {
        "grpc": "grpcio",
        "opentelemetry.proto": "opentelemetry-proto",
        "pynvml": "nvidia-ml-py",
        "yaml": "pyyaml",
    }
    for module in NEEDED:
        assert f"\n{packages.get(module, module.replace('_', '-'))}==" in lock
