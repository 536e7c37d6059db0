"""Compares the exporter with nvidia-smi on a real GPU: `make hardware` runs this; README.md says how.

Until the packages are there this file takes the standard library alone. Exit codes: 0 all agrees; 1 something does not,
or the run broke off; 2 there is no GPU, or a package or program is missing.
"""

import argparse
import asyncio
import ctypes
import os
import shutil
import signal
import sys
from pathlib import Path

from tests.hardware.wheels import ROOT, lacking, unpack

PACKAGES = ROOT / ".cache" / "hardware" / "packages"
WHEELS = ROOT / ".cache" / "hardware" / "wheels"
_LEAST_PYTHON = (3, 11)
_UUID_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE
MISSING = 2


def uuids_of(library: str) -> list[str]:
    """The UUIDs of all GPUs, by a library of NVML. Raises OSError: it cannot be loaded; RuntimeError: nor started."""
    nvml = ctypes.CDLL(library)
    code = nvml.nvmlInitWithFlags(ctypes.c_uint(0))
    if code:
        message = f"nvmlInit fails with {code}"
        raise RuntimeError(message)
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    uuids = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        text = ctypes.create_string_buffer(_UUID_BYTES)
        nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
        if nvml.nvmlDeviceGetUUID(handle, text, ctypes.c_uint(_UUID_BYTES)) == 0:
            uuids.append(text.value.decode())
    nvml.nvmlShutdown()
    return uuids


def _missing(what: str) -> int:
    sys.stderr.write(f"make hardware: {what}\n")
    return MISSING


def _with_packages(folder: Path, wheels: Path) -> str:  # noqa: RET503 - or never
    """Make the packages importable that this Python lacks. Returns what is still missing, in words; "" for nothing."""
    if folder.exists():
        sys.path.insert(0, str(folder))
    lacks = lacking()
    if not lacks:
        return ""
    if not list(wheels.glob("*.whl")):
        return (
            f"{', '.join(lacks)} missing: run `make hardware-wheels` where there is a network, and bring {wheels} here"
        )
    if os.environ.get("HARDWARE_UNPACKED"):
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return f"{wheels} lacks {', '.join(lacks)} for Python {version}: make hardware-wheels PYTHONS={version}"
    unpack(wheels, folder)
    # what is imported already stays: so begin anew
    again = [sys.executable, "-m", "tests.hardware", *sys.argv[1:]]
    os.execve(sys.executable, again, {**os.environ, "HARDWARE_UNPACKED": "1"})  # noqa: S606 - it is this program


def main() -> int:
    """Run, and judge."""
    parser = argparse.ArgumentParser(prog="make hardware", description="The exporter on this machine's GPU.")
    parser.add_argument(
        "--out", type=Path, default=Path("hardware-report"), help="the folder for the report and all answers"
    )
    parser.add_argument("--library", type=Path, help="a libnvidia-ml.so.1 in place of the driver's, such as a mock")
    parser.add_argument("--nvidia-smi", help="the program nvidia-smi; default: the one in the PATH")
    parser.add_argument("--gpu", type=int, default=0, help="the index of the GPU that works")
    parser.add_argument("--wheels", type=Path, default=WHEELS, help="the folder of `make hardware-wheels`")
    parser.add_argument("--packages", type=Path, default=PACKAGES, help="where wheels are unpacked")
    parser.add_argument("--scale", type=float, default=1.0, help="how long the phases take, as a factor")
    parser.add_argument("--judge", action="store_true", help="only judge the folder of an earlier run")
    given = parser.parse_args()
    if sys.version_info < _LEAST_PYTHON:
        return _missing("Python 3.11 or later is needed: make hardware PYTHON=/path/to/python3")
    if given.judge:
        return _judge(given.out)
    try:
        uuids = uuids_of(str(given.library or "libnvidia-ml.so.1"))
    except (OSError, RuntimeError, AttributeError) as error:
        return _missing(f"no GPU here, and no LIBRARY=/path/to/libnvidia-ml.so.1: {error}")
    if len(uuids) <= given.gpu:
        return _missing(f"the driver knows {len(uuids)} GPUs, and none of index {given.gpu}")
    trouble = _with_packages(given.packages, given.wheels)
    if trouble:
        return _missing(trouble)
    return _run(given, uuids)


def _run(given: argparse.Namespace, uuids: list[str]) -> int:
    # gRPC would log a line for each program that is started beside its threads
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
    from tests.hardware.collecting import Lengths, Wanted, collect  # noqa: PLC0415 - it takes the packages

    folder: Path = given.out.resolve()
    if folder.exists() and not (folder / "about.json").exists() and any(folder.iterdir()):
        return _missing(f"{folder} holds something else: name another folder with OUT=")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    smi = given.nvidia_smi if given.nvidia_smi is not None else shutil.which("nvidia-smi") or ""
    wanted = Wanted(
        folder=folder,
        library=given.library,
        # the one in the PATH is the driver's, and says nothing of another library
        nvidia_smi="" if given.library and given.nvidia_smi is None else smi,
        uuid=uuids[given.gpu],
        uuids=uuids,
        lengths=Lengths().times(given.scale),
    )

    async def until_done() -> None:
        task = asyncio.current_task()
        assert task is not None, "it runs in one"
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await collect(wanted)

    try:
        asyncio.run(until_done())
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.stderr.write(f"broken off; what there is lies in {folder}\n")
        return 1
    except RuntimeError as error:
        sys.stderr.write(f"the run broke off: {error}\n")
        _judge(folder)
        return 1
    return _judge(folder)


def _judge(folder: Path) -> int:
    import json  # noqa: PLC0415 - as below

    from tests.hardware import report, verdicts  # noqa: PLC0415 - not before the packages are there

    about = json.loads((folder / "about.json").read_text())
    rows = verdicts.judge(folder)
    model = next((row.theirs or row.ours for row in rows if row.what == "label modelName"), "a GPU")
    title = report.heading(about, model, verdicts.driver_of(folder))
    report.write(folder, title, about, rows)
    sys.stdout.write("\n".join([title, *report.summary(rows), f"see {folder / 'report.md'}"]) + "\n")
    return int(any(row.verdict == "fails" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
