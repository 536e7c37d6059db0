"""A bundle's file: a .tar.gz of a recording for people who unpack it, and for `demo --replay`.

bundle.json says what the bundle is, and which file of the archive has which answer, file or output. A content is there
once, under the name of the first place that has it. The same recording makes the same bytes.
"""

import gzip
import tarfile
from collections import Counter
from dataclasses import replace
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from exporter.bundle.bundle_reading import recording_of
from exporter.bundle.bundle_writing import files_of
from exporter.bundle.recording import Absence, Recording
from exporter.bundle.unpacking import MOST_UNPACKED_BYTES, DamagedBundle, members_of
from exporter.errors import ExporterError, Trouble
from exporter.wording import escaped

MOST_BYTES = 10 * 1024 * 1024
_FOLDER = "gpu-bundle"
_LEVEL = 6  # of gzip: 9 takes three times as long for pages, and packs them 2 % better
_LATEST = 8**11 - 1  # the largest time of a tar's header
_MIB = 1024 * 1024
_LARGEST = f"{MOST_BYTES // _MIB} MiB"
_BLOCK = 512
_END_OF_TAR = 10 * 1024


def write(recording: Recording, to: BinaryIO) -> int:
    """Write a recording as .tar.gz of at most MOST_BYTES, and return its size.

    A recording that is larger loses moments, from the middle on; one moment that is larger loses its outputs, the
    largest first. Its absences name what was left out. Raises ExporterError: it is too large without these, too.
    """
    packed = _packed(recording) or _with_fewer_moments(recording) or _with_fewer_outputs(recording)
    to.write(packed)
    return len(packed)


def read(path: Path) -> Recording:
    """Read a bundle that nobody vouches for, without extracting anything.

    Raises DamagedBundle: it is damaged, of a newer form, or no bundle.
    """
    members = members_of(path)
    try:
        return recording_of(members)
    except DamagedBundle as error:
        raise DamagedBundle(f"{escaped(str(path))}: {error}") from None


def _packed(recording: Recording) -> bytes | None:
    """The archive's bytes; None if they are too many, or if `read` would refuse what they unpack to."""
    files = files_of(recording)
    if files is None or sum(_size_in_tar(content) for content in files.values()) > MOST_UNPACKED_BYTES - _END_OF_TAR:
        return None

    seconds = min(max(int(recording.moments[0].at_seconds), 0), _LATEST)
    archive = BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=archive, compresslevel=_LEVEL, mtime=0) as packer,
        tarfile.open(fileobj=packer, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, content in files.items():
            header = tarfile.TarInfo(f"{_FOLDER}/{name}")
            header.size = len(content)
            header.mtime = seconds
            tar.addfile(header, BytesIO(content))
            if archive.tell() > MOST_BYTES:
                break

    return archive.getvalue() if archive.tell() <= MOST_BYTES else None


def _size_in_tar(content: bytes) -> int:
    """The bytes of a file in a tar: its header, its content, and what fills it up."""
    return _BLOCK + len(content) + -len(content) % _BLOCK


def _with_fewer_moments(recording: Recording) -> bytes | None:
    """The archive of as many moments as fit; None if not even one does."""
    fitting, too_many = 0, len(recording.moments)
    archive = None
    while too_many - fitting > 1:
        count = (fitting + too_many) // 2
        packed = _packed(_with_moments(recording, count))
        if packed is None:
            too_many = count
        else:
            fitting, archive = count, packed

    return archive


def _with_moments(recording: Recording, count: int) -> Recording:
    """The recording with `count` of its moments: the others are left out from the middle.

    What the kernel logged in them is told by the moment after.
    """
    moments = recording.moments
    end = len(moments) - count // 2
    start = count - count // 2
    left_out = moments[start:end]
    if not left_out:
        return recording

    later = moments[end:]
    if later:
        lines = chain.from_iterable(moment.kernel_log for moment in (*left_out, later[0]))
        later = (replace(later[0], kernel_log=tuple(lines)), *later[1:])

    times = f"{left_out[0].at_seconds:.0f} to {left_out[-1].at_seconds:.0f}"
    lack = _lack(f"{len(left_out)} of {len(moments)} moments, {times}", "take the bundle with a shorter --for")

    return replace(recording, moments=moments[:start] + later, absences=(*recording.absences, lack))


def _with_fewer_outputs(recording: Recording) -> bytes:
    """The archive of one moment without its largest outputs. Raises ExporterError: it is too large without any."""
    smaller = _with_moments(recording, 1)
    for path in _outputs_by_size(smaller):
        smaller = _without_output(smaller, path)
        packed = _packed(smaller)
        if packed is not None:
            return packed

    name, size = _largest(smaller)

    raise ExporterError(
        f"the bundle of one moment is larger than {_LARGEST}; what takes most is {escaped(name)}, {size / _MIB:.1f} MiB"
        " -> attach what doctor says without --bundle"
    )


def _outputs_by_size(recording: Recording) -> list[str]:
    """The paths of outputs, the largest first."""
    sizes: Counter[str] = Counter()
    for outputs in (recording.moments[0].outputs, recording.of_exporter):
        for path, content in outputs.items():
            sizes[path] += len(content)

    return [path for path, _ in sizes.most_common()]


def _without_output(recording: Recording, path: str) -> Recording:
    """The recording without what either exporter answers at a path."""
    moment = recording.moments[0]
    of_moment = {other: content for other, content in moment.outputs.items() if other != path}
    of_exporter = {other: content for other, content in recording.of_exporter.items() if other != path}

    return replace(
        recording,
        moments=(replace(moment, outputs=of_moment),),
        of_exporter=of_exporter,
        absences=(*recording.absences, _lack(f"the output {path}", f"attach the answer of {path}")),
    )


def _largest(recording: Recording) -> tuple[str, int]:
    """What takes most of a moment, and its bytes."""
    moment = recording.moments[0]
    sizes = {f"the file {place}": len(content) for place, content in moment.files.items()}
    sizes |= {f"the answer of {answer.name} to {answer.question}": len(answer.body) for answer in moment.answers}
    sizes["NVML's answers"] = sum(len(str(call)) for call in moment.calls)
    sizes["the kernel's log"] = sum(map(len, moment.kernel_log))
    sizes["the exporter's log"] = sum(map(len, recording.log))

    return max(sizes.items(), key=lambda row: row[1])


def _lack(what: str, remedy: str) -> Absence:
    """The absence of what was left out for the size."""
    return Absence(what=what, why=Trouble("oversize", f"the bundle would be larger than {_LARGEST}", remedy))
