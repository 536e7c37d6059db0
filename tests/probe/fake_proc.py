"""A tree like /proc, whose processes map what a test says."""

import shutil
from collections.abc import Mapping
from pathlib import Path


class FakeProc:
    """Each process has a folder of its own as its root unless it is given another one's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "proc"
        self.folder.mkdir()
        self._roots = folder

    def root(self, name: str) -> Path:
        root = self._roots / name
        root.mkdir(exist_ok=True)
        return root

    def put(
        self,
        pid: int,
        *,
        root: Path,
        maps: tuple[str, ...] = (),
        program: Path = Path("/bin/true"),
        start: int = 4711,
        memory: int = 1000,
        threads: int = 1,
        namespace: str = "1",
    ) -> None:
        """A process that maps these paths of its root; what one maps that is not there is of inode 7."""
        folder = self.folder / str(pid)
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "ns").mkdir(parents=True)
        of_namespace = self._roots / f"namespace-{namespace}"
        of_namespace.touch()
        (folder / "ns/mnt").symlink_to(of_namespace)
        (folder / "root").symlink_to(root)
        (folder / "exe").symlink_to(program)
        (folder / "maps").write_text("".join(_line(root, path) for path in maps))
        self.change(pid, start=start, memory=memory, threads=threads)

    def change(self, pid: int, *, start: int = 4711, memory: int = 1000, threads: int = 1) -> None:
        folder = self.folder / str(pid)
        numbers: Mapping[int, int] = {20: threads, 22: start}
        fields = " ".join(["S", *(str(numbers.get(number, 0)) for number in range(4, 53))])
        (folder / "stat").write_text(f"{pid} (a) b (c) {fields}\n")
        (folder / "statm").write_text(f"{memory} 100 100 1 0 100 0\n")

    def end(self, pid: int) -> None:
        shutil.rmtree(self.folder / str(pid))


def _line(root: Path, path: str) -> str:
    file = root / path.removesuffix(" (deleted)").lstrip("/")
    inode = file.stat().st_ino if file.is_file() else 7
    return f"7f0000000000-7f0000001000 r-xp 00000000 fe:01 {inode}   {path}\n"
