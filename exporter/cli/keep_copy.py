"""`python3 -m exporter.cli.keep_copy [--once] SOURCE TARGET`: runs in the pods that the operator makes, not for people.

From 4.2.3 on, dcgm-exporter reads its list of fields again if inotify reports that a file of that name has come into
its folder or has changed (its internal/pkg/watcher/file.go). In a ConfigMap's volume that never happens: the kubelet
turns the link ..data to another folder, and does not touch the links with the files' names (Kubernetes' AtomicWriter).
So this program keeps a copy in a folder of the pod's own, and puts each new version there by a rename.

It reads no settings, and imports only the standard library, since it runs on every node.
"""

import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

SECONDS_BETWEEN_LOOKS = 5.0
# the most bytes that a ConfigMap may have
MOST_BYTES = 1 << 20


class Unusable(Exception):
    """The source cannot be copied now, for the reason in the text."""


def copy_once(source: Path, target: Path) -> bool:
    """Copy `source` to `target`. Return False if the target has that content already.

    Raises:
        Unusable: the source is missing, empty or too large, or the target cannot be written. The target stays as it is.
    """
    try:
        content = _read(source)
        if _holds(target, content):
            return False
        new = target.with_name(f".{target.name}.new")
        new.write_bytes(content)
        new.replace(target)
    except OSError as error:
        # the error of a write to a full disk does not name the file
        raise Unusable(f"{error.filename or target}: {error.strerror}") from error
    return True


def main(arguments: list[str]) -> int:
    """Copy once, or again and again until SIGTERM. Return the exit code: 0, or 1 if the only copy failed."""
    # without a handler, the signal would not end a process with the id 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    once = arguments[:1] == ["--once"]
    source, target = map(Path, arguments[once:])
    logged = ""
    while True:
        try:
            copied = copy_once(source, target)
            trouble = ""
        except Unusable as error:
            copied = False
            trouble = str(error)
        if copied:
            _say(f"{target} is what {source} holds now")
        if trouble != logged:
            _say(f"{trouble}; {target} stays as it was" if trouble else f"{source} can be copied again")
        logged = trouble
        if once:
            return 1 if trouble else 0
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _read(path: Path) -> bytes:
    """A file's content. Raises OSError, or Unusable if it is empty or larger than a ConfigMap may be."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if not content.strip():
        raise Unusable(f"{path}: it is empty")
    if len(content) > MOST_BYTES:
        raise Unusable(f"{path}: it has more than {MOST_BYTES} bytes")
    return content


def _holds(target: Path, content: bytes) -> bool:
    """Whether the target has this content. After a crash of the machine, the target may be empty."""
    with suppress(FileNotFoundError), target.open("rb") as file:
        return file.read(len(content) + 1) == content
    return False


def _say(text: str) -> None:
    print(f"keep_copy: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
