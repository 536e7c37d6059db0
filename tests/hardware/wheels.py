"""The packages that the exporter needs and a bare machine lacks: fetched with a network, unpacked without one.

It takes the standard library alone, and leaves the machine's Python as it is: no pip, no venv. A wheel is a ZIP file,
and those of requirements.lock need no more than to be unpacked.

    python -m tests.hardware.wheels FOLDER --python 3.12 --machine x86_64      fills the folder, by pip
"""

import argparse
import importlib
import os
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# One module of each package that `serve`, the stand-in of the kubelet and what asks NVML import
NEEDED = ("aiohttp", "bcrypt", "click", "grpc", "msgspec", "opentelemetry.proto", "prometheus_client", "pynvml", "yaml")
# The oldest protobuf that reads exporter/_gen: see pyproject.toml
_LEAST_PROTOBUF = (7, 35)
# a name, a version, then the tags of Python, of its ABI and of the platform
_WHEEL = re.compile(r".+-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl")


def lacking() -> list[str]:
    """The modules that this Python lacks."""
    lacks = [name for name in NEEDED if not _is_there(name)]
    if not _is_there("google.protobuf"):
        return [*lacks, "google.protobuf"]
    version = importlib.import_module("google.protobuf").__version__
    is_new = tuple(int(part) for part in version.split(".")[:2]) >= _LEAST_PROTOBUF
    return lacks if is_new else [*lacks, f"google.protobuf (it has {version})"]


def _is_there(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def fits(name: str, version: tuple[int, int], machine: str) -> bool:
    """Whether a wheel, by its file's name, can be used by CPython of this version on this machine, with glibc."""
    matched = _WHEEL.fullmatch(name)
    if not matched:
        return False
    platforms = matched["platform"].split(".")
    if not any(part == "any" or (part.startswith("manylinux") and part.endswith(machine)) for part in platforms):
        return False
    pythons = matched["python"].split(".")
    if matched["abi"] == "none":
        return any(part in {"py3", f"cp{version[0]}{version[1]}"} for part in pythons)
    if "abi3" in matched["abi"].split("."):
        numbers = [int(part.removeprefix("cp3")) for part in pythons if part.startswith("cp3")]
        return any(number <= version[1] for number in numbers)
    return f"cp{version[0]}{version[1]}" in matched["abi"].split(".")


def unpack(wheels: Path, folder: Path) -> list[str]:
    """Unpack those that fit this Python into a folder for PYTHONPATH. Returns their names."""
    version = sys.version_info[:2]
    names = sorted(path.name for path in wheels.glob("*.whl") if fits(path.name, version, platform.machine()))
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        with zipfile.ZipFile(wheels / name) as wheel:
            wheel.extractall(folder)
    return names


def fetch(folder: Path, versions: Iterable[str], machine: str) -> None:
    """Fill the folder, by pip, from what requirements.lock names. Raises CalledProcessError: pip fails."""
    for version in versions:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"),
                *("--require-hashes", "-r", ROOT / "requirements.lock", "-d", folder),
                *("--implementation", "cp", "--python-version", version, "--abi", f"cp{version.replace('.', '')}"),
                *("--abi", "abi3", "--abi", "none"),
                *(f"--platform=manylinux{tag}_{machine}" for tag in ("_2_28", "_2_17", "2014", "_2_12", "_2_5")),
            ],
            check=True,
            env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )


def main() -> None:
    """Fill a folder."""
    parser = argparse.ArgumentParser(description="Fetch the wheels that `make hardware` takes along.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", action="append", help="3.12; repeatable")
    parser.add_argument("--machine", default="x86_64", help="x86_64 or aarch64")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    fetch(given.folder, given.python or ["3.12"], given.machine)
    size = sum(path.stat().st_size for path in given.folder.glob("*.whl"))
    sys.stdout.write(f"{len(list(given.folder.glob('*.whl')))} wheels, {size / 1e6:.0f} MB, in {given.folder}\n")


if __name__ == "__main__":
    main()
