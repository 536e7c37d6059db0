"""NVML of a simulated node: a stand-in for libnvidia-ml.so.1, and the file beside it that its answers come from.

The library is built of nvml.c with the machine's gcc, once for each version of that file. The exporter loads it exactly
as it loads the real one.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from exporter.simulator.parts import Gpu
from exporter.simulator.profiles import PROFILES

LIBRARY = "libnvidia-ml.so.1"
_SOURCE = Path(__file__).with_name("nvml.c")
_MIB = 1024**2


class SimulatedNvml:
    """The library and its file in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.library = folder / LIBRARY
        self._answers = folder / "nvml.txt"
        self._changes = 0
        self._loaded: ctypes.CDLL | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether `load` could load it."""
        return self._loaded is not None

    def load(self) -> None:
        """Load the library, if it can be built, so that whoever asks for it by its name in this process gets it."""
        if self.build():
            self._loaded = ctypes.CDLL(str(self.library))

    def build(self) -> bool:
        """Put the library into the folder. Returns False where this machine cannot build it."""
        return _build(self.library)

    def write(
        self, gpus: Sequence[Gpu], more: Iterable[str] = (), *, tells_changes: bool = True, is_recut: bool = True
    ) -> None:
        """From now on the library knows these GPUs. `more` are further lines, as nvml.c describes them.

        `tells_changes` says whether the driver supports the event of a change of MIG instances, which this is one,
        unless `is_recut` is off.
        """
        self._changes += is_recut
        lines = [*_lines(gpus), f"events {int(tells_changes)} {self._changes}", *more]
        new = self._answers.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n")
        new.replace(self._answers)


def _lines(gpus: Sequence[Gpu]) -> Iterator[str]:
    for gpu in gpus:
        yield f"gpu {gpu.index} {gpu.index} {int(bool(gpu.instances))} {gpu.card.memory * _MIB} {gpu.uuid}"
        if gpu.instances:
            yield f"slices {gpu.index} {gpu.card.slices}"
        for place, mig in enumerate(gpu.instances):
            sizes = PROFILES[mig.profile]
            yield (
                f"mig {gpu.index} {place} {mig.instance_id} 0 {sizes.slices} {sizes.slices} {sizes.memory}"
                f" {mig.device_id} {gpu.card.model} MIG {mig.profile}"
            )


def _build(library: Path) -> bool:
    gcc = shutil.which("gcc")
    if gcc is None:
        return False
    version = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pod-gpu-metrics-exporter" / version
    try:
        if not (kept / LIBRARY).exists():
            kept.mkdir(parents=True, exist_ok=True)
            _compile(gcc, kept / LIBRARY)
        # a copy: to the dynamic loader one file is one library, and each node has answers of its own
        shutil.copy(kept / LIBRARY, library)
    except OSError:  # there is no such folder, or it cannot be written
        return _compile(gcc, library)
    except subprocess.CalledProcessError:
        return False
    return True


def _compile(gcc: str, library: Path) -> bool:
    with tempfile.NamedTemporaryFile(dir=library.parent, delete=False) as new:
        pass
    try:
        # the name under which the exporter asks for it
        flags = ("-shared", "-fPIC", "-O1", f"-Wl,-soname,{LIBRARY}")
        subprocess.run(  # noqa: S603 - a compiler, and a file of this program
            [gcc, *flags, "-o", new.name, str(_SOURCE), "-ldl", "-lpthread"], check=True, capture_output=True
        )
        Path(new.name).replace(library)
    finally:
        Path(new.name).unlink(missing_ok=True)
    return True
