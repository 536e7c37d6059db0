"""Real processes in mount namespaces of their own, as containers are, in the machine's /proc."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from exporter.probe.functions import WANTED, Role
from exporter.probe.programs import Detach, Programs
from tests.probe.elves import SOURCE, compiled
from tests.support.components import real

# Opens the library at this path, says so, and stays until its input ends. With "wait" it waits before that; with
# another second argument it afterwards hides the library's folder behind a link to there.
LOADER = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[2], "wait")) { puts("waits"); fflush(stdout); getchar(); }
    if (!dlopen(argv[1], RTLD_NOW)) { puts(dlerror()); return 1; }
    if (argc > 2 && strcmp(argv[2], "wait"))
        if (mount("none", "/cuda", "tmpfs", 0, 0) || symlink(argv[2], argv[1])) { perror("hide"); return 1; }
    puts("has it"); fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
"""
LIBRARY = "/cuda/libcudart.so.13"
OVERLAY = "mount -t overlay none -o lowerdir=$1,upperdir=$2/upper,workdir=$2/work $2/root"
OWN_COPY = "mount -t tmpfs none $2/root; cp -r $1/. $2/root"


class Files:
    """Stands in for the kernel: the roles of the files that are attached."""

    def __init__(self) -> None:
        self.roles: list[Role] = []

    def attach(self, path: str, offsets: Mapping[str, tuple[int, ...]], role: Role) -> Detach:
        assert Path(path).is_file()
        assert offsets
        self.roles.append(role)
        return lambda: self.roles.remove(role)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    compiled(folder / "libcudart.so.13", SOURCE, "-shared", "-fPIC")
    compiled(folder / "loader", LOADER)
    return folder


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """The machine's /proc as far as a test has put processes there: those of other tests may use CUDA, too."""
    folder = tmp_path / "proc"
    folder.mkdir()
    return folder


@pytest.fixture
def programs(files: Files, proc: Path) -> Programs:
    return Programs(proc=proc, wanted=WANTED, attach=files.attach, most_programs=64)


@contextmanager
def container(
    proc: Path, folder: Path, lower: Path, mount: str, *more: str | Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with this root, in a mount namespace of its own, that has the library of it loaded."""
    for name in ("upper", "work", "root"):
        (folder / name).mkdir(parents=True)
    # pivot_root puts the mount at / of the namespace, as container runtimes do
    script = f'{mount}; cd $2/root; mkdir -p old; pivot_root . old; shift 2; exec /loader {LIBRARY} "$@"'
    process = subprocess.Popen(
        ["unshare", "--mount", "sh", "-euc", script, "sh", lower, folder, *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == b"has it\n"
        (proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        yield process
    finally:
        process.communicate(timeout=30)


@pytest.fixture
def lower(made: Path, tmp_path: Path) -> Path:
    """What each container's root is made of: the loader with its own libraries, and CUDA's."""
    if os.geteuid() != 0:
        real("root-to-make-namespaces-with")
    real("unshare")
    root = tmp_path / "lower"
    (root / "cuda").mkdir(parents=True)
    shutil.copy(made / "libcudart.so.13", root / "cuda")
    shutil.copy(made / "loader", root)
    needed = subprocess.run([real("ldd"), root / "loader"], capture_output=True, check=True, timeout=30).stdout.decode()
    for path in {word for word in needed.split() if word.startswith("/")}:
        (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path.lstrip("/"))
    return root


# issue 13, "Must show" 3
@pytest.mark.real
def test_two_containers_with_their_own_copies_at_one_path(
    tmp_path: Path, proc: Path, lower: Path, programs: Programs, files: Files
) -> None:
    with container(proc, tmp_path / "one", lower, OWN_COPY) as one:
        with container(proc, tmp_path / "two", lower, OWN_COPY) as two:
            scanned = programs.scan()
            assert set(scanned.processes) == {one.pid, two.pid}
            keys = [
                next(file.key for file in scanned.processes[process.pid].files if file.role == "cudart")
                for process in (one, two)
            ]
            assert keys[0] != keys[1]
            assert sorted(files.roles) == ["cudart", "cudart", "libc", "libc"]
            assert scanned.failures == {}
        programs.scan()
        assert sorted(files.roles) == ["cudart", "libc"]
    assert programs.scan().programs == 0
    assert files.roles == []


@pytest.mark.real
def test_containers_of_one_image_share_its_files(
    tmp_path: Path, proc: Path, lower: Path, programs: Programs, files: Files
) -> None:
    """Two devices for stat, but one inode below, to which uprobes go: two of them would count each call twice."""
    image = tmp_path / "image"
    # neither layer may be an overlay itself, as the folder of a test in a container may be
    with ExitStack() as stack:
        image.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", image], check=True, timeout=10)
        stack.callback(lambda: subprocess.run(["umount", image], check=True, timeout=10))
        shutil.copytree(lower, image / "lower")
        with (
            container(proc, image / "one", image / "lower", OVERLAY) as one,
            container(proc, image / "two", image / "lower", OVERLAY) as two,
        ):
            scanned = programs.scan()
            assert set(scanned.processes) == {one.pid, two.pid}
            assert sorted(files.roles) == ["cudart", "libc"]
        assert programs.scan().programs == 0


@pytest.mark.real
def test_a_link_of_a_container_leads_to_no_file_outside(
    tmp_path: Path, proc: Path, lower: Path, programs: Programs, files: Files
) -> None:
    outside = lower / LIBRARY.lstrip("/")
    with container(proc, tmp_path / "one", lower, OWN_COPY, outside) as one:
        shown = Path(f"/proc/{one.pid}/root{LIBRARY}")
        assert shown.samefile(outside)  # whoever opens it by its path is led outside
        scanned = programs.scan()
        assert list(scanned.processes) == [one.pid]
        assert (files.roles, scanned.failures) == (["libc"], {"missing": 1})


# issue 13, "Must show" 3
@pytest.mark.real
def test_a_process_that_loads_cuda_after_it_was_looked_at(made: Path, files: Files) -> None:
    programs = Programs(proc=Path("/proc"), wanted=WANTED, attach=files.attach, most_programs=64)
    command: list[str | Path] = [made / "loader", made / "libcudart.so.13", "wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"waits\n"
        assert process.pid not in programs.scan().processes
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"has it\n"
        # a scan takes two seconds at most: on a busy machine it may leave some processes to the next ones
        assert any(process.pid in programs.scan().processes for _ in range(10))
        assert "cudart" in files.roles
        process.communicate(timeout=30)
    assert process.pid not in programs.scan().processes
    assert files.roles == []
