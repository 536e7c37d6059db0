"""`make fuzz SECONDS=600`: all targets side by side. Exit code 1 if one found an input that breaks its properties."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

TARGETS = ("exposition", "device_ids", "decoders", "annotations")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        running = []
        for target in TARGETS:
            corpus = Path(folder) / target
            corpus.mkdir()
            command = [sys.executable, "-m", "tests.fuzz.engine", target, f"-max_total_time={given.seconds}"]
            log = (Path(folder) / f"{target}.log").open("w+")
            command += [f"-artifact_prefix={folder}/{target}-", str(corpus)]
            running.append((target, log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
        failed = False
        for target, log, process in running:
            code = process.wait()
            log.seek(0)
            lines = log.read().splitlines()
            print(
                f"{target}: {next((line for line in reversed(lines) if line.startswith('Done')), f'exit code {code}')}"
            )
            if code:
                failed = True
                print("\n".join(lines[-60:]))
                for found in Path(folder).glob(f"{target}-*"):
                    if found.is_file() and found.suffix != ".log":
                        print(f"{found.name}: {found.read_bytes()!r}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
