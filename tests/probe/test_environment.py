import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from exporter.probe import process_files
from exporter.probe.elf import BadElf, variable_address
from exporter.probe.process_files import MOST_CHARACTERS, gpu_files, read_maps, visible_devices
from tests.cuda import hostile
from tests.probe.elves import compiled
from tests.probe.fake_proc import FakeProc
from tests.support.components import real

PROC = Path("/proc")
NAME = "CUDA_VISIBLE_DEVICES"
# says that it is ready, and stays until its input ends
STAY = "print(flush=True); sys.stdin.read()"
C = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern char **environ;
int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "set")) setenv("CUDA_VISIBLE_DEVICES", argv[2], 1);
    if (argc > 1 && !strcmp(argv[1], "unset")) unsetenv("CUDA_VISIBLE_DEVICES");
    if (argc > 1 && !strcmp(argv[1], "clear")) clearenv();
    if (argc > 1 && !strcmp(argv[1], "odd")) environ = (char **)0xdead000;
    if (argc > 1 && !strcmp(argv[1], "far")) environ = (char **)~0UL;
    if (argc > 1 && !strcmp(argv[1], "odd-string")) environ[0] = (char *)8;
    if (argc > 1 && !strcmp(argv[1], "many")) {
        environ = calloc(100001, 8);
        for (int i = 0; i < 100000; i++) environ[i] = "X=1";
        environ[99999] = "CUDA_VISIBLE_DEVICES=late";
    }
    putchar('\\n'); fflush(stdout);
    return getchar() == 0;
}
"""


@contextmanager
def running(*command: str | Path, value: str | bytes | None = None) -> Iterator[int]:
    """The pid of a program that has done what it has to do, started with this value."""
    given = {os.fsencode(k): os.fsencode(v) for k, v in os.environ.items() if k != NAME}
    if value is not None:
        given[NAME.encode()] = os.fsencode(value)
    with subprocess.Popen(command, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout
        assert program.stdout.read(1) == b"\n"
        yield program.pid
        program.communicate(b"\n", timeout=30)


def python(code: str, value: str | bytes | None = None) -> str | None:
    with running(sys.executable, "-c", f"import os, sys; {code}; {STAY}", value=value) as pid:
        return visible_devices(PROC, pid)


@pytest.mark.parametrize(
    ("code", "started_with", "value"),
    [
        ("pass", None, None),
        ("pass", "0,1", "0,1"),
        ("pass", "", ""),
        (f"os.environ['{NAME}'] = '3'", None, "3"),
        (f"os.environ['{NAME}'] = '3'", "0,1", "3"),
        (f"os.environ['{NAME}'] = ''", "0,1", ""),
        (f"del os.environ['{NAME}']", "0,1", None),
        (f"os.environ['X{NAME}'] = '3'; os.environ['{NAME}_X'] = '4'", "0,1", "0,1"),
        (f"os.environ['{NAME}'] = '3'; [os.environ.update({{f'X{{n}}': 'x'}}) for n in range(500)]", "0", "3"),
    ],
)
def test_what_a_python_program_has_set(code: str, started_with: str | None, value: str | None) -> None:
    assert python(code, started_with) == value


def test_bytes_of_any_kind_and_too_many_of_them() -> None:
    assert python("pass", b"0,\xff\xfe\n1") == "0,��\n1"
    assert python(f"os.environb[b'{NAME}'] = b'\\xc3'") == "�"
    assert python(f"os.environ['{NAME}'] = 'GPU-é' * 100_000") == ("GPU-é" * MOST_CHARACTERS)[:MOST_CHARACTERS]
    assert python("pass", "7" * 10_000) == "7" * MOST_CHARACTERS


@pytest.mark.real
@pytest.mark.parametrize(
    "options",
    [("-fPIE", "-pie"), ("-no-pie",), ("-fPIC", "-pie"), ("-static",), ("-static-pie",), ("-s",)],
    ids=str,
)
def test_what_a_program_in_c_has_set(tmp_path: Path, options: tuple[str, ...]) -> None:
    program = compiled(tmp_path / "a.out", C, *options)
    with running(program, "set", "3", value="0") as pid:
        assert visible_devices(PROC, pid) == "3"
    with running(program, "unset", value="0") as pid:
        assert visible_devices(PROC, pid) is None
    with running(program, "clear", value="0") as pid:
        assert visible_devices(PROC, pid) is None


@pytest.mark.real
def test_the_variable_of_the_libc_and_no_longer_when_that_is_replaced(tmp_path: Path) -> None:
    """A program that does not name `environ` has no copy of it; a static variable of this name is none."""
    source = C.replace("extern char **environ;", "static char **environ;")
    program = compiled(tmp_path / "a.out", source)
    (libc,) = (f for f in read_maps(Path("/proc/self/maps").read_text()) if f.role == "libc")
    own = tmp_path / "libc.so.6"
    shutil.copy(libc.path, own)
    with running("env", f"LD_LIBRARY_PATH={tmp_path}", program, "set", "3", value="0") as pid:
        assert str(own) in Path(f"/proc/{pid}/maps").read_text()
        assert visible_devices(PROC, pid) == "3"
        shutil.copy(libc.path, tmp_path / "other")
        (tmp_path / "other").rename(own)
        assert visible_devices(PROC, pid) == "0"


@pytest.mark.real
def test_the_start_counts_where_the_memory_says_nothing(tmp_path: Path) -> None:
    program = compiled(tmp_path / "a.out", C, "-static", "-s")
    with running(program, "set", "3", value="0") as pid:
        assert visible_devices(PROC, pid) == "0"
    with running(program, "set", "3", value="7" * 10_000) as pid:
        assert visible_devices(PROC, pid) == "7" * MOST_CHARACTERS


@pytest.mark.real
@pytest.mark.parametrize("odd", ["odd", "far", "odd-string"])
def test_the_start_counts_where_the_memory_is_nonsense(tmp_path: Path, odd: str) -> None:
    program = compiled(tmp_path / "a.out", C)
    with running(program, odd, value="0") as pid:
        assert visible_devices(PROC, pid) == "0"


# issue 15, line 12
@pytest.mark.real
def test_the_start_counts_where_a_libc_names_an_address_below_all_memory() -> None:
    with hostile.files() as files, hostile.running(files.libc, 1, environment={NAME: "0"}) as pid:
        assert visible_devices(PROC, pid) == "0"


@pytest.mark.real
@pytest.mark.parametrize("why", ["damaged", "too_large"])
def test_the_start_counts_where_the_program_cannot_be_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: Literal["damaged", "too_large"]
) -> None:
    """It may have the copy of `environ` that its libc writes to; the one in the libc would say that nothing is set."""

    def address(file: int, names: Collection[str], offset: int, *, most_table_bytes: int) -> int | None:
        if Path(f"/proc/self/fd/{file}").samefile(program):
            if why == "damaged":
                raise BadElf(why)
            most_table_bytes = 100
        return variable_address(file, names, offset, most_table_bytes=most_table_bytes)

    monkeypatch.setattr(process_files, "variable_address", address)
    program = compiled(tmp_path / "a.out", C, "-no-pie")
    with running(program, "set", "3", value="0") as pid:
        assert visible_devices(PROC, pid) == "0"


@pytest.mark.real
def test_no_more_variables_than_the_limit_are_read(tmp_path: Path) -> None:
    program = compiled(tmp_path / "a.out", C)
    with running(program, "many", value="0") as pid:
        began = time.process_time()
        assert visible_devices(PROC, pid) is None
        assert time.process_time() - began < 0.5


@pytest.mark.real
def test_a_program_without_the_right_to_trace(tmp_path: Path) -> None:
    """Another user's process has neither memory nor environment for whoever is not root."""
    if os.geteuid() != 0:
        real("root-to-become-another-user-with")
    program = compiled(tmp_path / "a.out", C)
    ask = (
        "import os, sys; from pathlib import Path;"
        "from exporter.probe.process_files import Hidden, visible_devices;"
        "os.setresuid(65534, 65534, 65534)\n"
        "try: print(visible_devices(Path('/proc'), int(sys.argv[1])))\n"
        "except Hidden: print('hidden')"
    )
    with running(program, "set", "3", value="0") as pid:
        said = subprocess.run([sys.executable, "-c", ask, str(pid)], capture_output=True, check=True, timeout=30).stdout
    assert said == b"hidden\n"


def test_the_gpus_that_a_process_finds(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    root = proc.root("one")
    proc.put(8, root=root)
    assert gpu_files(proc.folder, 8) == 0, "no /dev"
    (root / "dev/nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidia13", "nvidiactl", "nvidia-uvm", "nvidia", "xnvidia1", "nvidia1x"):
        (root / "dev" / name).touch()
    assert gpu_files(proc.folder, 8) == 2
    assert gpu_files(proc.folder, 9) == 0, "no such process"


def test_the_folder_of_devices_is_that_of_the_container_and_no_other_thing(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    root, outside = proc.root("one"), tmp_path / "outside"
    proc.put(8, root=root)
    outside.mkdir()
    (outside / "nvidia0").touch()
    (root / "dev").symlink_to("/../../outside")
    assert gpu_files(proc.folder, 8) == 0
    (root / "dev").unlink()
    os.mkfifo(root / "dev")
    assert gpu_files(proc.folder, 8) == 0


def test_no_more_device_files_are_counted_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = FakeProc(tmp_path)
    root = proc.root("one")
    proc.put(8, root=root)
    (root / "dev").mkdir()
    for number in range(9):
        (root / f"dev/nvidia{number}").touch()
    monkeypatch.setattr(process_files, "MOST_DEVICE_FILES", 4)
    assert gpu_files(proc.folder, 8) == 4


def test_no_such_process(tmp_path: Path) -> None:
    assert visible_devices(tmp_path, 1) is None
    (tmp_path / "1").mkdir()
    assert visible_devices(tmp_path, 1) is None


def test_a_folder_of_another_form_has_its_start(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/environ").write_bytes(b"A=1\0CUDA_VISIBLE_DEVICES=2\0")
    assert visible_devices(tmp_path, 1) == "2"
    (tmp_path / "1/environ").write_bytes(b"A=1\0" * process_files.MOST_START_BYTES + b"CUDA_VISIBLE_DEVICES=2\0")
    assert visible_devices(tmp_path, 1) is None
