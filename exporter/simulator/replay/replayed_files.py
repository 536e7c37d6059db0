"""The files of a bundle, written below a folder as the moments change them."""

import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from exporter.errors import ExporterError
from exporter.sources.container_logs import FOLDER as LOGS

_PLACES = ("root", "kubelet", "page")
_SINGLE = ("inventory", "rules")
# The kernel's log is a pipe, which `SimulatedKernelLog` makes.
_NOT_FILES = frozenset({"root/dev/kmsg"})


class ReplayedFiles:
    """The files of the present moment. A file is renamed into place, and one that is gone is removed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, bytes] = {}

    def show(self, files: Mapping[str, bytes]) -> None:
        """Write what is new or has changed, and remove the others.

        Raises:
            ExporterError: a place leads out of the folder.
        """
        wanted = {place: content for place, content in files.items() if place not in _NOT_FILES}
        for place in self._written.keys() - wanted.keys():
            self._remove(place)
        for place, content in wanted.items():
            if self._written.get(place) != content:
                self._write(place, content)
        self._written = wanted

    def path(self, place: str) -> Path:
        """The path of a place. Raises ExporterError: it leads out of the folder."""
        parts = PurePosixPath(place).parts
        is_place = place in _SINGLE or (len(parts) > 1 and parts[0] in _PLACES)
        if not is_place or ".." in parts or "\0" in place:
            raise ExporterError(f"the bundle has a file at {place!r}, where no source reads: it is broken")
        return self._folder / page_file(place) if parts[0] == "page" else self._folder.joinpath(*parts)

    def _write(self, place: str, content: bytes) -> None:
        """Write a file, or a link.

        Raises:
            ExporterError: the place leads out of the folder, or the file cannot be there.
        """
        path = self.path(place)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.parent.resolve().is_relative_to(self._folder.resolve()):
                raise ExporterError(f"the bundle's file {place!r} is below a link that leads out of the bundle")
            beside = path.with_name(f".{path.name[:100]}.new")
            beside.unlink(missing_ok=True)
            if is_log(place):
                beside.symlink_to(content.decode("utf-8", "replace") or "/dev/null")
            else:
                beside.write_bytes(content)
            beside.replace(path)
        except (OSError, ValueError) as error:
            raise ExporterError(f"the bundle's file {place!r} cannot be written: {error}") from error

    def _remove(self, place: str) -> None:
        """Remove a file, and the folders that are empty without it: a process that has ended leaves none."""
        path = self.path(place)
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if self._folder in (folder.parent, folder) or str(folder).endswith(_KEPT_FOLDERS):
                break
            try:
                folder.rmdir()
            except OSError:  # it is not empty
                break


_KEPT_FOLDERS = (LOGS, "var/log/pods", "run/cdi", "etc/cdi")


def is_log(place: str) -> bool:
    """Whether a place is a link of the kubelet to a container's log. Its content is what it links to."""
    return str(PurePosixPath(place).parent) == f"root/{LOGS}"


def page_file(place: str) -> str:
    """The place of a page's file: its own folder, with the name that the file has."""
    return f"page/{zlib.crc32(place.encode()):08x}/{PurePosixPath(place).name}"
