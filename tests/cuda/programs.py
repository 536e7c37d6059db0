"""Programs that use CUDA, over libraries that need no GPU: both are compiled from the C of this folder.

`gpu.h` says what the stubs take for a GPU, `program.c` what a script can say.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from exporter.model.cuda import CudaCounts
from tests.support.components import real
from tests.support.places import ROOT

SOURCES = Path(__file__).parent
# How a program comes to its CUDA: it opens the libraries, is linked with one, or has the runtime linked into it.
Variant = Literal["opens", "linked", "static", "driver"]
_SHARED = ("-fPIC", "-shared", "-fno-ipa-icf")
_RUNTIME = (*_SHARED, "-Wl,-soname,libcudart.so.13", "-Wl,--version-script=libcudart.map", "stub_cudart.c")
_STARTS_WITHIN = 20.0
WAITING = "waiting\n"


@dataclass(frozen=True, slots=True)
class Built:
    """Folder `own` has a libcudart.so.13 that does the work itself, `over_driver` one that calls libcuda.so.1."""

    folder: Path

    @property
    def own(self) -> Path:
        return self.folder / "own"

    @property
    def over_driver(self) -> Path:
        return self.folder / "over-driver"

    @property
    def runtime(self) -> Path:
        return self.own / "libcudart.so.13"

    @property
    def driver(self) -> Path:
        return self.over_driver / "libcuda.so.1"

    def program(self, variant: Variant | Literal["hostile"]) -> Path:
        return self.folder / variant


def kept(sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills, once for these sources as they are."""
    named = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources))
    folder = ROOT / ".cache" / "cuda" / named.hexdigest()[:16]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
        unfinished.chmod(0o755)
        make(unfinished)
        try:
            unfinished.rename(folder)
        except OSError:  # another run of the tests was faster
            shutil.rmtree(unfinished)
    return folder


@cache
def built() -> Built:
    """The stubs and the programs. It takes gcc."""
    gcc = real("gcc")
    sources = sorted(path for path in SOURCES.iterdir() if path.suffix in {".c", ".h", ".map"})
    return Built(kept((*sources, Path(__file__)), lambda folder: _compile(gcc, folder)))


def _compile(gcc: Path, into: Path) -> None:
    found = Built(into)
    found.own.mkdir()
    found.over_driver.mkdir()

    def compiled(to: Path, *arguments: str | Path) -> None:
        subprocess.run([gcc, "-O2", "-pthread", "-o", to, *arguments], cwd=SOURCES, check=True, timeout=60)

    compiled(found.driver, *_SHARED, "-Wl,-soname,libcuda.so.1", "stub_cuda.c")
    compiled(found.runtime, *_RUNTIME)
    compiled(found.over_driver / "libcudart.so.13", "-DCALLS_DRIVER", *_RUNTIME)
    compiled(found.program("opens"), "program.c")
    compiled(found.program("hostile"), "hostile.c")
    compiled(found.program("linked"), "-DLINKED=1", "program.c", found.runtime)
    compiled(found.program("driver"), "-DLINKED=2", "program.c", found.driver)
    compiled(found.program("static"), "-DLINKED=1", "program.c", "stub_cudart.c")


class Truth(NamedTuple):
    """What a program says that it did, by the device's ordinal; `spin_ns` is what a call of `spin` took it."""

    pid: int
    counts: Mapping[int, CudaCounts]
    spin_ns: float


def _truth(line: str) -> Truth:
    told: dict[str, Any] = json.loads(line)
    counts = {}
    for ordinal, device in told["devices"].items():
        device["errors"] = {int(code): times for code, times in device["errors"].items()}
        for name in ("copies", "copied_bytes"):
            device[name] = tuple(device[name])
        counts[int(ordinal)] = CudaCounts(**device)
    return Truth(told["pid"], counts, told["spin_ns"])


def without_times(counts: CudaCounts) -> CudaCounts:
    """The part of it that is exact: times are compared by themselves."""
    return counts._replace(sync_ns=0, active_ns=0)


class Program:
    """A running program. It has made no call of CUDA until `go`, and ends with the block at the latest.

    Each script has a thread of its own. `before` is put before the command line: it must execute the rest.
    """

    def __init__(
        self,
        *scripts: str,
        variant: Variant = "opens",
        libraries: Path | None = None,
        late: bool = False,
        before: Sequence[str | Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        made = built()
        command = [*before, made.program(variant), *(("--late",) if late else ()), *scripts]
        more = {"LD_LIBRARY_PATH": str(libraries or made.own), **(environment or {})}
        self._started = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **more}
        )

    @property
    def pid(self) -> int:
        return self._started.pid

    def __enter__(self) -> Self:
        self._read("ready")
        return self

    def __exit__(self, *_: object) -> None:
        if self._started.poll() is None:
            self._started.kill()
        self._started.communicate(timeout=_STARTS_WITHIN)

    def go(self) -> None:
        """Run the scripts, without waiting for their end."""
        assert self._started.stdin
        self._started.stdin.write("\n")
        self._started.stdin.flush()

    def waits(self) -> None:
        """Return once a script has come to a `wait`; the next `go` ends that."""
        self._read(WAITING)

    def is_ready(self) -> None:
        """Return once a program that replaces this one has started."""
        self._read("ready")

    @property
    def has_ended(self) -> bool:
        return self._started.poll() is not None

    def ended(self) -> None:
        """Return once the program has ended by itself."""
        self._started.wait(_STARTS_WITHIN)

    def truth(self) -> Truth:
        """What was done. It comes once the scripts have ended; the program is still there. Of each child, one."""
        return _truth(self._read("{"))

    def done(self) -> Truth:
        """Run the scripts, and wait for them."""
        self.go()
        return self.truth()

    def end(self) -> None:
        """Let the program end by itself, without freeing anything."""
        self._started.communicate("\n", timeout=_STARTS_WITHIN)

    def kill(self) -> None:
        self._started.kill()
        self._started.wait(_STARTS_WITHIN)

    def _read(self, begins: str) -> str:
        assert self._started.stdout
        line = self._started.stdout.readline()
        while line == WAITING and begins != WAITING:
            line = self._started.stdout.readline()
        if not line.startswith(begins):
            raise AssertionError(f"the program said {line!r}, not {begins!r}...")
        return line
