"""What shells complete: by their scripts, which the wheel has, and by a real bash."""

import os
import pty
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from exporter.cli.commands import COMMANDS
from exporter.cli.main import _COMPLETES, commands
from tests.support.golden import Golden
from tests.support.places import ROOT
from tests.support.waiting import wait_until

PROGRAM = "pod-gpu-metrics-exporter"
FOLDER = ROOT / "deploy" / "completion"
SHELLS: Mapping[str, type[ShellComplete]] = {"bash": BashComplete, "fish": FishComplete, "zsh": ZshComplete}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shipped_scripts_are_those_that_the_program_writes(shell: str, golden: Golden) -> None:
    made = SHELLS[shell](commands, {}, PROGRAM, _COMPLETES)
    text = made.source_template % made.source_vars() + "\n"
    golden.holds(FOLDER / f"{PROGRAM}.{shell}", text)


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ([], [*COMMANDS]),
        (["do"], ["doctor"]),
        (["serve", "--kubelet.so"], ["--kubelet.socket"]),
        (["--kubelet.so"], ["--kubelet.socket"]),
        (["--log.level", "debug", "--kubelet.so"], ["--kubelet.socket"]),
        (["serve", "--sharing", "s"], ["split"]),
        (["serve", "--dra", ""], ["auto", "on", "off"]),
        (["serve", "--config.file", "/et"], ["a file"]),
        (["textfile", "--output", ""], ["a file"]),
        (["serve", "--log.level", ""], []),
        (["top", "--sort", "w"], ["watts"]),
        (["cluster", "--cluster.prom"], [f"--cluster.prometheus{end}" for end in ("", "-matchers", "-labels")]),
    ],
)
def test_what_may_come_next_is_offered(line: list[str], offers: list[str]) -> None:
    *before, incomplete = line or [""]
    items = BashComplete(commands, {}, PROGRAM, _COMPLETES).get_completions(before, incomplete)
    assert ["a file" if item.type == "file" else item.value for item in items] == offers


def test_a_real_bash_completes_a_flag(tmp_path: Path) -> None:
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "INPUTRC": "/dev/null",
    }
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe("bash", ["bash", "--noprofile", "--norc", "-i"], environ)  # noqa: S606 - a program of its own terminal
    screen = bytearray()

    def shows(text: bytes) -> bool:
        screen.extend(os.read(terminal, 4096))
        return text in screen

    try:
        os.write(terminal, f"PS1='ready: '; . {FOLDER / PROGRAM}.bash\n".encode())
        wait_until(lambda: shows(b"\nready: "))
        os.write(terminal, f"{PROGRAM} serve --kubelet.so\t".encode())
        wait_until(lambda: shows(b"serve --kubelet.socket "))
    finally:
        os.write(terminal, b"\x15exit\n")  # the line is cleared
        os.close(terminal)
        os.waitpid(process, 0)
