"""A real Prometheus with a folder and a port of its own, and what it answers."""

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import quick_yaml
from tests.support.components import free_port, real
from tests.support.places import ROOT
from tests.support.waiting import PATIENCE_SECONDS, wait_until

# what a discovery would say of the exporter's own pod
OWN_LABELS = {"pod": "exporter-x", "namespace": "monitoring", "container": "exporter"}
STORED_WITHIN_SECONDS = 1.0
Answers = list[tuple[dict[str, str], float]]


class Prometheus:
    """A server at an address. `at_seconds`, where it is set, is the moment that queries are about."""

    def __init__(self, base: str, log: Path) -> None:
        self.base = base
        self.at_seconds: float | None = None
        self._log = log

    def query(self, text: str) -> Answers:
        """What an instant query answers: labels and value of each series.

        Raises:
            urllib.error.HTTPError: it does not parse, or cannot be evaluated.
        """
        return [(labels, float(value)) for labels, value in self.texts(text)]

    def texts(self, text: str) -> list[tuple[dict[str, str], str]]:
        """The same with values as they are written."""
        question = {"query": text} | ({} if self.at_seconds is None else {"time": f"{self.at_seconds:.3f}"})
        found = self.ask(f"query?{urllib.parse.urlencode(question)}")
        return [(row["metric"], row["value"][1]) for row in found["result"]]

    def ask(self, path: str) -> Any:
        """The data that another path of its API answers."""
        with urllib.request.urlopen(f"{self.base}/api/v1/{path}", timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)["data"]

    def number(self, text: str) -> float:
        """The only value that a query answers."""
        ((_, value),) = self.query(text)
        return value

    def wait_for_scrapes(self, jobs: int, seconds: float = 45) -> None:
        """Until every job was scraped twice, so that a second scrape of everything has been seen as well."""

        def are_scraped() -> bool:
            try:
                return len(self.query("count_over_time(up[1m]) >= 2")) == jobs
            except OSError:
                return False  # it is still starting

        wait_until(are_scraped, seconds, lambda: f"Prometheus has scraped everything:\n{self._log.read_text()[-3000:]}")

    def stand_where_all_are_up(self, scrape_seconds: float = 1.0) -> None:
        """Ask from now on about a moment at which every target is up: a busy machine is late for some scrapes.

        A scrape is of the moment at which it began, and is stored when it has ended. So all that had begun then are
        waited for: one takes at most `scrape_seconds`.
        """

        def are_up() -> bool:
            return all(value == 1.0 for _, value in self.query("up"))

        def were_up() -> bool:
            self.at_seconds = time.time()
            if not are_up():
                return False
            time.sleep(scrape_seconds + STORED_WITHIN_SECONDS)
            return are_up()

        wait_until(were_up, why=lambda: [labels for labels, value in self.query("up") if value != 1.0])


@contextmanager
def started(
    folder: Path,
    jobs: Sequence[dict[str, Any]],
    scrapes_apart: str = "1s",
    timeout: str = "",
    rule_files: Sequence[Path] = (),
    program: Path | None = None,
    flags: Sequence[str] = (),
) -> Iterator[str]:
    """A server that scrapes these jobs, by its address; it may still be starting. Its log is `log` in the folder.

    Rules are evaluated as often as it scrapes. `program` is another one than Debian 12's; `flags` are more of its own.
    """
    port = free_port()
    settings = {
        "global": {
            "scrape_interval": scrapes_apart,
            "scrape_timeout": timeout or scrapes_apart,
            "evaluation_interval": scrapes_apart,
        },
        "rule_files": [str(path) for path in rule_files],
        "scrape_configs": [*jobs],
    }
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                program or real("prometheus"),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                *flags,
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def prometheus(
    folder: Path,
    jobs: Sequence[dict[str, Any]],
    scrapes_apart: str = "1s",
    rule_files: Sequence[Path] = (),
    program: Path | None = None,
    flags: Sequence[str] = (),
) -> Iterator[Prometheus]:
    """A server that scrapes these jobs, to be asked; it may still be starting. See `started`."""
    with started(folder, jobs, scrapes_apart, rule_files=rule_files, program=program, flags=flags) as base:
        yield Prometheus(base, folder / "log")


def shipped_jobs(target: str, scrapes_apart: str = "1s", prefix: str = "", **changes: Any) -> list[dict[str, Any]]:
    """deploy/prometheus/scrape-config.yaml with our target, as a pod's discovery would label it."""
    shipped = quick_yaml.load((ROOT / "deploy" / "prometheus" / "scrape-config.yaml").read_text())["scrape_configs"]
    return [
        {
            **found,
            **changes,
            "scrape_interval": scrapes_apart,
            "job_name": prefix + found["job_name"],
            "static_configs": [{"targets": [target], "labels": OWN_LABELS}],
        }
        for found in shipped
    ]
