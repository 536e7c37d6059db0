"""The doors of the README and of the pages that start the program; test_commands_of_docs.py goes through each."""

import re
import shlex
from pathlib import Path

from tests.end_to_end.test_commands_of_docs import COMMANDS as RUN
from tests.support.exporter import config_from
from tests.support.places import ROOT

PAGES = ("install", "migration", "scrape", "doctor", "troubleshooting")
TEXTS = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in PAGES))
# Those of another language are found, too, so that none's end is taken for a beginning.
BLOCKS = [
    block
    for path in TEXTS
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
    if not language
]
LINES = [line.partition("    #")[0].strip() for block in BLOCKS for line in block.splitlines()]
COMMANDS = sorted(
    {line for line in LINES if re.match(r"pod-gpu-metrics-exporter (serve|textfile|doctor)\b(?! --conformance)", line)}
)


def test_there_are_doors() -> None:
    assert {*COMMANDS} <= {*RUN}
    assert len(COMMANDS) >= 3
    assert {shlex.split(command)[1] for command in COMMANDS} == {"serve", "textfile", "doctor"}


def test_docker_run_as_written() -> None:
    (line,) = {line for line in LINES if line.startswith("docker run ")}
    words = shlex.split(line)
    arguments = words[words.index("pod-gpu-metrics-exporter:0.1.0") + 1 :]
    config = config_from(arguments)
    folder = Path(config.kubelet.socket).parent
    assert words[words.index("-v") + 1] == f"{folder}:{folder}:ro"
    # what tests/image/test_image.py runs it with
    assert {"--read-only", "--cap-drop", "ALL"} <= set(words)


def test_every_file_that_is_named_exists() -> None:
    for path in TEXTS:
        for name in re.findall(r"(?<![\w/.-])((?:deploy|docs)/[\w./-]+|daemonset\.yaml)", path.read_text()):
            assert (ROOT / name.rstrip(".")).exists(), name
