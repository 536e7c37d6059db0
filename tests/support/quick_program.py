"""The program's command, for a shell that runs many: it starts in a fortieth of a second.

    python -m tests.support.quick_program FOLDER

writes `FOLDER/pod-gpu-metrics-exporter`, and goes on. That command asks it for a fork of itself, which has imported
what the program needs: a process of its own, with the command's words, folder, environment, files and signals.
`top`, which reads keys of a terminal of its own, is the real one.
"""

import gc
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from exporter.cli.commands import COMMANDS, PROGRAM
from exporter.cli.main import import_command, run

# what commands import only when they are run
LATER = (
    "exporter.cluster.role",
    "exporter.report.history.over_http",
    "exporter.service",
    "exporter.simulator.demo",
    "exporter.simulator.scheduler",
    "exporter.simulator.simulated_node",
)
COMMAND = """#!{python} -IS
import json, os, signal, socket, sys
if sys.argv[1:] == ["top"]:
    os.execv({real!r}, [{real!r}, "top"])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
asked = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(asked).to_bytes(4, "big")], [0, 1, 2])
server.sendall(asked)
process = int(server.recv(20))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(process, number))
server.sendall(b"!")
os._exit(int(server.recv(20) or 1))
"""


def serve(folder: Path) -> None:
    """Write the command, and fork for each one that is run."""
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        real = Path(sys.executable).with_name(PROGRAM)
        command = folder / PROGRAM
        command.write_text(COMMAND.format(python=os.path.realpath(sys.executable), real=str(real), address=address))
        command.chmod(0o755)
        print("ready", flush=True)  # noqa: T201 - who has started it waits for that
        with suppress(KeyboardInterrupt):
            while True:
                asking, _ = listening.accept()
                with asking:
                    if not os.fork():
                        listening.close()
                        answer(asking)
    with suppress(ChildProcessError):
        while True:
            os.wait()


def answer(asking: socket.socket) -> None:
    """Fork the program once more, and answer with its process and then with its exit code."""
    length, files, _, _ = socket.recv_fds(asking, 4, 3)
    words, folder, environment = json.loads(asking.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
    process = os.fork()
    if not process:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        asking.close()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.exit(run(words))
    for file in files:
        os.close(file)
    asking.sendall(str(process).encode())
    asking.recv(1)
    asking.sendall(str(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])).encode())
    os._exit(0)


if __name__ == "__main__":
    for name in COMMANDS:
        import_command([name])
    for name in LATER:
        import_module(name)
    gc.freeze()
    serve(Path(sys.argv[1]).resolve())
