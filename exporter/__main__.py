"""The console script, and `python -m exporter`.

Tests: tests/cli/test_help.py.
"""

import os
import signal
import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    # The import takes most of a second, and a Ctrl-C meanwhile would end it with a trace. Nothing has begun yet, so the
    # process may end at once. (It needs a handler, since a signal without one does not end a process with the id 1.)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, _: os._exit(128 + number))
    from exporter.cli.main import import_command, run  # noqa: PLC0415 - see above

    import_command(sys.argv[1:])
    signal.signal(signal.SIGINT, before)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
