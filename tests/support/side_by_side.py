"""pytest several times, side by side: `python -m tests.support.side_by_side COMMAND… + MORE… + MORE…`.

The command is run with each of the further arguments. What the first one says is shown as it comes, what each other one
says once it has ended. A few tests that failed are run once more, alone, when all others have ended: that tells what a
busy machine was too late for from what is broken. Both are shown. Ends with 1 where any failed, and not only once.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SECOND_TRIES = 4
"""More failures than this in one run are no accident, and stay failures."""


def main(words: list[str]) -> int:
    """Run them. Returns the exit code."""
    lists: list[list[str]] = [[]]
    for word in words:
        if word == "+":
            lists.append([])
        else:
            lists[-1].append(word)
    command, *runs = lists if len(lists) > 1 else (*lists, [])
    with tempfile.TemporaryDirectory() as caches:
        commands = [
            [*command, "-o", f"cache_dir={caches}/{number}", *arguments] for number, arguments in enumerate(runs)
        ]
        codes = _side_by_side(commands)
        for number, code in enumerate(codes):
            if code == 1:
                codes[number] = _once_more(commands[number], Path(caches, str(number)))
    return int(any(codes))


def _side_by_side(commands: list[list[str]]) -> list[int]:
    """Run all of them. Returns their exit codes."""
    first, *others = commands
    started = []
    for command in others:
        output = tempfile.TemporaryFile()  # noqa: SIM115 - it goes with the program
        started.append((subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT), output))
    codes = [subprocess.run(first, check=False).returncode]
    for process, output in started:
        codes.append(process.wait())
        output.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return codes


def _once_more(command: list[str], cache: Path) -> int:
    """Run what has failed alone. Returns the exit code."""
    failures = cache / "v/cache/lastfailed"
    names = list(json.loads(failures.read_text())) if failures.exists() else []
    if not 0 < len(names) <= SECOND_TRIES:
        return 1
    sys.stdout.write(f"Failed beside the others, now once more alone: {', '.join(names)}\n")
    sys.stdout.flush()
    return subprocess.run([*command, "--last-failed", "--last-failed-no-failures", "none"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
