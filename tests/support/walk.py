"""A walk of a page's first minutes: its commands, and a runner for them in a network of its own.

Run under `unshare --net` as root, in the folder of the walk. Standard input: JSON, a list of what `Step` has. Runs one
after another, and prints what each wrote, as JSON.
"""

import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

SECONDS = 30.0
GOES_ON = "# goes on until Ctrl-C"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command as it is written, and what its output shows once it has done its work (a regular expression)."""

    command: str
    shows: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether it runs until the end of the walk."""
        return self.command.endswith(GOES_ON)


def commands_of(text: str, section: str) -> list[str]:
    """The commands of a section's blocks, in their order; one with a here-document has all of its lines."""
    (body,) = re.findall(rf"^## {re.escape(section)}$(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    commands: list[str] = []
    end = ""
    for block in re.findall(r"^```\w*\n(.*?)^```$", body, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if end:
                commands[-1] += f"\n{line}"
                end = "" if line == end else end
                continue
            commands.append(line)
            begun = re.search(r"<<'(\w+)'$", line)
            end = begun[1] if begun else ""
    return commands


def walk(steps: list[Step]) -> list[str]:
    """What the steps wrote. A step is taken again until it shows what it is to show, as a person would."""
    outputs = []
    going_on: list[subprocess.Popen[bytes]] = []
    try:
        for number, step in enumerate(steps):
            if step.goes_on:
                path = Path(f"step-{number}.log")
                with path.open("wb") as log:
                    # a terminal's Ctrl-C reaches every process of the command
                    going_on.append(
                        subprocess.Popen(["bash", "-c", step.command], stdout=log, stderr=log, start_new_session=True)
                    )
                outputs.append(until_shown(step, path.read_text))
            else:
                outputs.append(until_shown(step, partial(run, step.command)))
    finally:
        for process in reversed(going_on):
            os.killpg(process.pid, signal.SIGINT)
            process.wait(SECONDS)
    return outputs


def run(command: str) -> str:
    try:
        ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return ended.stdout if ended.returncode == 0 else ""


def until_shown(step: Step, look: Callable[[], str]) -> str:
    deadline = time.monotonic() + SECONDS
    while True:
        output = look()
        if re.search(step.shows, output) or time.monotonic() > deadline:
            return output
        time.sleep(0.2)


def bring_loopback_up() -> None:
    with socket.socket() as any_socket:
        interface = struct.pack("16sh14x", b"lo", 1)  # struct ifreq: IFF_UP
        fcntl.ioctl(any_socket, 0x8914, interface)  # SIOCSIFFLAGS


def as_json(steps: list[Step]) -> str:
    """What the runner reads."""
    return json.dumps([asdict(step) for step in steps])


if __name__ == "__main__":
    bring_loopback_up()
    # what a shell runs in the background has it ignored, and so would all that is started here
    signal.signal(signal.SIGINT, signal.default_int_handler)
    json.dump(walk([Step(**step) for step in json.load(sys.stdin)]), sys.stdout)
