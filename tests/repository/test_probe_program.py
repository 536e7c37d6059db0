"""The CUDA probe's program: how it is compiled, and that it goes with the packages."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.components import real
from tests.support.places import ROOT

FOLDER = Path("exporter/probe")
SOURCE = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} calls SEC(".maps");
char LICENSE[] SEC("license") = "Dual BSD/GPL";
SEC("uprobe")
int seen(void *registers)
{
    __u32 first = 0;
    __u64 *count = bpf_map_lookup_elem(&calls, &first);
    if (count)
#if defined(__TARGET_ARCH_x86)
        *count += 1;
#elif defined(__TARGET_ARCH_arm64)
        *count += 2;
#endif
    return 0;
}
"""
SAYS = "the CUDA probe is built without its program: that needs clang, llvm and libbpf-dev, as Debian calls them\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a program of its own, in which the script is the shipped one."""
    for folder in (FOLDER, Path("release")):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "release" / "compile-probe", tmp_path / "release")
    (tmp_path / FOLDER / "cuda.bpf.c").write_text(SOURCE)
    return tmp_path


def compiled(checkout: Path, *arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "release" / "compile-probe", *arguments],
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def objects(checkout: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (checkout / FOLDER).glob("*.bpf.o*")}


@pytest.mark.real
def test_it_is_compiled_for_both_machines_and_to_the_same_bytes_anywhere(checkout: Path, tmp_path: Path) -> None:
    real("clang")
    real("llvm-strip")
    ended = compiled(checkout)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = objects(checkout)
    assert found.keys() == {"cuda.x86_64.bpf.o", "cuda.aarch64.bpf.o"}
    assert len(set(found.values())) == len(found)
    elsewhere = tmp_path / "another" / "place"
    shutil.copytree(checkout, elsewhere, ignore=shutil.ignore_patterns("another", "*.o"))
    compiled(elsewhere)
    assert objects(elsewhere) == found
    program = (checkout / FOLDER / "cuda.x86_64.bpf.o").read_bytes()
    # BTF, which libbpf reads maps by, and none of what is for debuggers
    assert b".BTF.ext" in program
    assert b".debug_info" not in program


@pytest.mark.real
def test_what_has_not_changed_keeps_its_time(checkout: Path) -> None:
    real("clang")
    compiled(checkout)
    first, second = sorted((checkout / FOLDER).glob("*.bpf.o"))
    os.utime(first, (1, 1))
    second.write_bytes(b"of another source")
    compiled(checkout)
    assert first.stat().st_mtime == 1
    assert second.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.real
def test_a_fault_of_the_program_ends_it_and_leaves_the_old_one(checkout: Path) -> None:
    real("clang")
    compiled(checkout)
    before = objects(checkout)
    assert before
    (checkout / FOLDER / "cuda.bpf.c").write_text(SOURCE.replace("bpf_map_lookup_elem", "no_such_helper"))
    for arguments in ((), ("--if-possible",)):
        ended = compiled(checkout, *arguments)
        assert ended.returncode != 0
        assert "no_such_helper" in ended.stderr
        assert {name: found for name, found in objects(checkout).items() if not name.endswith(".new")} == before


def test_without_a_compiler_it_says_so_in_one_line(checkout: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "uname"):
        (tools / name).symlink_to(shutil.which(name) or name)
    ended = compiled(checkout, path=str(tools))
    assert (ended.returncode, ended.stderr) == (1, SAYS)
    ended = compiled(checkout, "--if-possible", path=str(tools))
    assert (ended.returncode, ended.stderr) == (0, SAYS)
    assert objects(checkout) == {}


def test_the_wheel_and_the_sdist_have_what_git_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "release").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "release/metadata.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("exporter/__init__.py", f"{FOLDER}/cuda.x86_64.bpf.o"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('__version__ = "1.0"\n')
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    with zipfile.ZipFile(next((tmp_path / "dist").glob("*.whl"))) as wheel:
        assert f"{FOLDER}/cuda.x86_64.bpf.o" in wheel.namelist()
    with tarfile.open(next((tmp_path / "dist").glob("*.tar.gz"))) as sdist:
        assert f"pod_gpu_metrics_exporter-1.0/{FOLDER}/cuda.x86_64.bpf.o" in sdist.getnames()
