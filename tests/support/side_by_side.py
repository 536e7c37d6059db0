"""A program several times, side by side: `python -m tests.support.side_by_side COMMAND… + MORE… + MORE…`.

The command is run with each of the further arguments. What the first one says is shown as it comes, what each other one
says once it has ended. Ends with 1 where any failed.
"""

import subprocess
import sys
import tempfile


def main(words: list[str]) -> int:
    """Run them. Returns the exit code."""
    lists: list[list[str]] = [[]]
    for word in words:
        if word == "+":
            lists.append([])
        else:
            lists[-1].append(word)
    command, first, *others = (*lists, []) if len(lists) == 1 else lists
    started = []
    for arguments in others:
        said = tempfile.TemporaryFile()  # noqa: SIM115 - it goes with the program
        started.append((subprocess.Popen([*command, *arguments], stdout=said, stderr=subprocess.STDOUT), said))
    codes = [subprocess.run([*command, *first], check=False).returncode]
    for process, said in started:
        codes.append(process.wait())
        said.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(said.read())
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
