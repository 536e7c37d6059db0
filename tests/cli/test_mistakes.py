"""Typical mistakes, and what is answered: `make golden` writes all answers into tests/data/mistakes.md.

Each answer is one line and exit code 2, names what is wrong, and says what to do instead.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from exporter.cli.commands import COMMANDS
from exporter.cli.main import run
from exporter.config import cluster_settings, node_settings, operator_settings, suggestions
from exporter.config.environment import doubts
from exporter.config.foreign_names import OTHER_NAMES
from exporter.config.suggestions import closest, did_you_mean
from tests.support import quick_yaml
from tests.support.chart import helm, rendered_texts
from tests.support.golden import Golden
from tests.support.places import DATA, ROOT

ANSWERS = DATA / "mistakes.md"
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
PROGRAM = "pod-gpu-metrics-exporter"

# what is typed behind the program's name, and the remedy
COMMAND_LINES = {
    "serve --listen :9400": "did you mean --web.listen-address?",
    "serve --port 9400": "did you mean --web.listen-address?",
    "serve -a :9400": "did you mean --web.listen-address?",
    "serve -web.listen-address=:9400": "did you mean --web.listen-address?",
    "serve --dcgm-url http://localhost:9401/metrics": "did you mean --dcgm.url?",
    "serve -k": "leave it out",
    "serve -f /etc/dcgm-exporter/counters.csv": "give it to that program",
    "serve --web.telemetry-path /gpu": "set metrics_path: /gpu/metrics",
    "serve --nvidia-smi-command nvidia-smi": "--dcgm.mode off",
    "cluster --kubelet.socket /kubelet.sock": "serve, textfile, doctor, healthcheck have it",
    "serve --kubelet.timout 5s": "did you mean --kubelet.timeout?",
    "serve --kubelet.timeout 5": "it takes a duration such as 500ms, 5s or 1m",
    "serve --web.listen-address 9400": "it takes an address such as :9400",
    "serve --resources nvidia.com/gpu,amd.com/gpu": "of several, give each for itself",
    "serve --dcgm.url http://localhost:9400/metrics": "one of the two must move",
    "serve --probe.mode": "it takes off|on",
    "docter": "did you mean doctor?",
    "start": "did you mean serve?",
    "--log.level debug cluster": f"{PROGRAM} cluster --log.level debug",
    "serve help": "did you mean --help?",
    "cluster --prometheus http://prom:9090": "did you mean --cluster.prometheus?",
    "report --url http://prom:9090": "did you mean --prometheus?",
    "top http://gpu-1:9400": "did you mean --url http://gpu-1:9400?",
    "top --port 9400": "did you mean --url?",
    "report --since 30d": f"{PROGRAM} report --prometheus URL",
    "bundle show": f"type {PROGRAM} bundle show|test FILE",
    "bundle show a.tar.gz b.tar.gz": "a word too many",
    # issue 22, line 20
    "report --prometheus http://prom:9090 -o bill.csv": "put > FILE behind it",
    "report --prometheus http://prom:9090 --namespace shop": "--match namespace=NAME",
    "report --prometheus http://prom:9090 --by team": "label:team",
    "report --prometheus http://prom:9090 --by namespaces": "did you mean namespace?",
    "report --prometheus http://prom:9090 --price-per-gpu-hour '$2.50'": "names no currency",
    "report --prometheus http://prom:9090 --price-per-gpu-hour .50": "of $2.50 a shell leaves .50",
    "report --prometheus prom:9090": "http://prom:9090",
    "doctor --url http://gpu-1:9400": "--web.listen-address HOST:PORT",
    "healthcheck --url http://localhost:9400": "--web.listen-address HOST:PORT",
    "top --node gpu-node-1": "--filter NAME",
    "top --namespace chat": "--filter NAME",
}
# what stands in the file, and the remedy
FILES = {
    "kubelet.sockt: /kubelet.sock\n": "did you mean kubelet.socket?",
    "kubelet: /kubelet.sock\n": "did you mean kubelet.socket, kubelet.timeout or kubelet.max-age?",
    "port: 9400\n": "did you mean web.listen-address?",
    "cluster.node: http://gpu-1:9400\n": "cluster takes it: leave it out here",
    "log:\nlevel: debug\n": "indent its keys by two spaces",
    "kubelet:\n  socket: /kubelet.sock\n   timeout: 5s\n": "indent the keys of one level alike",
    "kubelet:\n\ttimeout: 5s\n": "indent with spaces, not with tabs",
    "kubelet.socket: [/a.sock, /b.sock]\n": "it takes one value and no list",
    "sharing: {mode: split}\n": "it takes copy, split or device",
    "kubelet.timeout: 5\n": "it takes a duration such as 500ms, 5s or 1m",
    "kubelet.timeout:\n": "give it one, or leave it out",
    "sharing: on\n": "it takes copy, split or device",
    "sharing: copy\nsharing: split\n": "give each key once",
    "resources: *.com/gpu\n": "put a text that begins with * or & into quotes",
    "sharing=split\n": "must hold keys and values, such as `kubelet.socket: /path`",
}
# what stands where --config.file names a file, how it comes there, and the remedy
PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no file": (lambda _: None, "name one that is there"),
    "a folder": (Path.mkdir, "name the file itself"),
    "a file that the exporter may not read": (
        lambda path: path.symlink_to(os.devnull),
        "let the exporter's user read it",
    ),
}
# what stands in the chart's values, and the remedy
VALUES = {
    "mod: gpu-operator": "did you mean mode?",
    "mode: operator": "value must be one of 'sidecar', 'gpu-operator', 'nvml', 'custom', 'none'",
    "sharing: split": "put it below config",
    'arguments: ["-k"]': "dcgm-exporter's arguments are dcgmExporter.extraArgs",
    "replicaCount: 2": "each GPU node has one; did you mean cluster.replicas?",
    "image: {repo: registry.example.com/exporter}": "did you mean image.repository?",
    "image: registry.example.com/exporter:0.1.0": "at '/image': got string, want object",
    "image: {tag: 1.20}": "put it into quotes",
    "serviceMonitor: {enabled: true, interval: 30}": "it takes a duration such as 30s",
    'serviceMonitor: {enabled: "yes"}': "at '/serviceMonitor/enabled': got string, want boolean",
    "serviceMonitor: {enabled: true}\nservice: {enabled: false}": "podMonitor needs no Service",
    "serviceMonitor: {enabled: true}\npodMonitor: {enabled: true}": "set podMonitor.enabled to false",
    "basicAuth: {users: {prometheus: secret}}": "it takes a bcrypt hash, in quotes: htpasswd",
    "tlsServerConfig: {enabled: true}": "name the Secret with certificate and key",
    "rollingUpdate: {maxUnavailble: 1}": "value must be one of 'maxUnavailable', 'maxSurge'",
    "kubeletPath: var/lib/kubelet": "it takes an absolute path",
    # issue 22, line 21
    "config: {sharing: splitt}": "it takes copy, split or device",
    "config: {kubelet: {timeout: 5}}": "it takes a duration such as 500ms, 5s or 1m",
    "config: {labels.pod_labels: app}": "did you mean labels.pod-labels?",
    "config: {labels: {pod_labels: app}}": "did you mean labels.pod-labels?",
    "config: {cluster.node: http://gpu-1:9400}": "the command cluster takes it",
    "extraArgs: [--sharng=split]": "did you mean --sharing?",
    "extraArgs: [--sharing, splitt]": "it takes copy, split or device",
    'extraArgs: ["-k"]': "flags begin with --",
    "cluster: {extraArgs: [--cluster.intervall=5s]}": "did you mean --cluster.interval?",
    "operator: {extraArgs: [--dcgm.url=http://gpu-1:9401]}": "the command serve takes it",
    "resources: {limits: {memory: 64}}": "it takes a quantity such as 64Mi: 64 are bytes",
    "cluster: {resources: {limits: {memory: 256m}}}": "it takes a quantity such as 64Mi",
    "resources: {requests: {cpu: 10M}}": "it takes a quantity such as 100m or 2",
    "mode: custom": "say where the GPU samples come from",
}


@cache
def refusal(values: str) -> str:
    """Helm's last lines, without the place in the templates."""
    with pytest.raises(helm().HelmError) as raised:
        rendered_texts(quick_yaml.load(values))
    text = re.sub(r"execution error at \(.*?\): ", "", str(raised.value).removeprefix(f"{PROGRAM}:"))
    return " ".join(text.replace("\n", " ").split()).removeprefix("- ")


@pytest.mark.real
@pytest.mark.parametrize("values", VALUES)
def test_a_mistake_in_the_charts_values_is_answered_with_a_remedy(values: str) -> None:
    assert VALUES[values] in refusal(values)
    assert "secret" not in refusal(values)


@pytest.mark.real
@pytest.mark.parametrize("path", ["", "image.", "dcgmExporter.image.", "cluster.keda.", "basicAuth."])
def test_no_key_of_the_chart_is_passed_over(path: str) -> None:
    values = "".join(f"{key}: {{" for key in path.split(".")[:-1]) + "qqqq: 1" + "}" * path.count(".")
    assert f"{path}qqqq is no value of this chart; " in refusal(values)


def answer(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """The one line, without the program's name."""
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    name, _, line = shown.err.strip().partition(": ")
    assert name == PROGRAM
    return line


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("POD_GPU_EXPORTER_", "DCGM_", "LOG_LEVEL", "HTTP_LISTEN_PORT", "NODE_NAME")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("typed", COMMAND_LINES)
def test_a_mistake_on_the_command_line_is_answered_with_a_remedy(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert COMMAND_LINES[typed] in answer(capsys, shlex.split(typed))


def with_file(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    return answer(capsys, ["serve", f"--config.file={path}"]).replace(str(path), "/etc/config.yaml")


@pytest.mark.parametrize("content", FILES)
def test_a_mistake_in_the_file_is_answered_with_a_remedy(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    assert FILES[content] in with_file(capsys, path)


@pytest.fixture
def nobody_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything: of files whose name says so, the system's answer to other users."""
    really = os.open

    def refuse(path: str, *arguments: int) -> int:
        if "may-not-read" in str(path):
            raise PermissionError(13, "Permission denied", path)
        return really(path, *arguments)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.usefixtures("nobody_may_read")
@pytest.mark.parametrize("what", PLACES)
def test_a_file_that_is_none_is_answered_with_a_remedy(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, remedy = PLACES[what]
    path = tmp_path / what.replace(" ", "-")
    make(path)
    assert remedy in with_file(capsys, path)


def test_every_name_of_another_program_leads_to_a_flag_or_says_what_to_do() -> None:
    settings = {
        setting.name for role in (node_settings, cluster_settings, operator_settings) for setting in role.SETTINGS
    }
    own = {"config.file", "url", "prometheus", "http-config", "once", "interval", "output", "since", "by", "format"} | {
        "match",
        "filter",
    }
    for row in OTHER_NAMES:
        assert bool(row.here) != bool(row.do), row
        assert set(row.of) <= {*COMMANDS}
        assert set(row.here) <= settings | own | {"price-per-gpu-hour", "gpus"}
        for named in re.findall(r"--([a-z][a-z.-]*[a-z])", row.do):
            assert named in settings | own | {"collect-interval", "version"}
    # nothing is answered that is a flag of the same command
    assert not settings & {typed for row in OTHER_NAMES for typed in row.typed}


def test_the_roles_of_keys_are_those_of_the_settings() -> None:
    roles = {
        name: {setting.name.partition(".")[0] for setting in role.SETTINGS}
        for name, role in (("serve", node_settings), ("cluster", cluster_settings), ("operator", operator_settings))
    }
    of_all = set.intersection(*roles.values())
    assert {key: name for name, keys in roles.items() for key in keys - of_all} == suggestions.ROLES


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("kubelet.sockt", ["kubelet.socket"]),
        ("kubeletSocket", ["kubelet.socket"]),
        ("kubelet_socket", ["kubelet.socket"]),
        ("--kubelet.socket", ["kubelet.socket"]),
        ("socket.kubelet", ["kubelet.socket"]),
        ("log", ["log.format", "log.level", "kernel-log.mode"]),
        ("qqq", []),
    ],
)
def test_the_nearest_names_come_first_and_are_three_at_most(name: str, near: list[str]) -> None:
    assert list(closest(name, [setting.name for setting in node_settings.SETTINGS]))[: len(near) or 1] == near
    assert len(closest(name, [setting.name for setting in node_settings.SETTINGS])) <= 3


def test_a_name_of_several_programs_is_what_the_command_has() -> None:
    assert did_you_mean("-n", ["--once"]) == "did you mean --once?"
    assert did_you_mean("-n", ["--cluster.namespace"]) == "did you mean --cluster.namespace?"
    assert did_you_mean("-d", ["--interval"]) == "did you mean --interval?"
    assert "dcgm-exporter" in did_you_mean("-d", ["--dcgm.url"])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("POD_GPU_EXPORTER_WEB_LISTEN_ADRESS", "did you mean POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS?"),
        ("POD_GPU_METRICS_EXPORTER_LOG_LEVEL", "did you mean POD_GPU_EXPORTER_LOG_LEVEL?"),
        ("PODGPU_EXPORTER_LOG_LEVEL", "did you mean POD_GPU_EXPORTER_LOG_LEVEL?"),
        ("pod_gpu_exporter_log_level", "did you mean POD_GPU_EXPORTER_LOG_LEVEL?"),
        ("POD_GPU_METRICS_EXPORTER_SERVICE_HOST", None),
        ("POD_GPU_METRICS_EXPORTER_PORT_9400_TCP", None),
        ("DCGM_EXPORTER_LISTEN", None),
    ],
)
def test_an_environment_name_with_a_typo_is_warned_of(name: str, meant: str | None) -> None:
    assert [doubt.remedy for doubt in doubts({name: "x"}, node_settings.SETTINGS)] == ([meant] if meant else [])


def rows(capsys: pytest.CaptureFixture[str], folder: Path) -> Iterator[str]:
    """The page's tables."""
    yield "## On the command line\n"
    yield "| typed | answered |\n| --- | --- |"
    for typed in COMMAND_LINES:
        yield f"| {code(typed)} | {code(answer(capsys, shlex.split(typed)).partition(' (see ')[0])} |"
    yield "\n## In the file of `--config.file`\n"
    yield "| the file | answered |\n| --- | --- |"
    for number, content in enumerate(FILES):
        path = folder / f"{number}.yaml"
        path.write_text(content)
        yield f"| {'<br>'.join(map(code, content.splitlines()))} | {code(with_file(capsys, path))} |"
    for what, (make, _) in PLACES.items():
        path = folder / what.replace(" ", "-")
        make(path)
        yield f"| {what} | {code(with_file(capsys, path))} |"
    yield "\n## In the chart's values\n"
    yield "`helm template`, `install` and `upgrade` say so, and change nothing.\n"
    yield "| the values | answered |\n| --- | --- |"
    for values in VALUES:
        yield f"| {'<br>'.join(map(code, values.splitlines()))} | {code(refusal(values))} |"


def code(text: str) -> str:
    """As it stands, spaces at the beginning included."""
    for mark, written in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        ("|", "&#124;"),
        ("*", "&#42;"),
        ("_", "&#95;"),
        ("`", "&#96;"),
    ):
        text = text.replace(mark, written)
    return f"<code>{text.replace(chr(9), '⇥').replace('  ', '&nbsp; ')}</code>"


INTRO = f"""\
# Typical mistakes, and what is answered

<!-- Made by `make golden`: change what it is made of, not this file. -->

A wrong command line or file ends with exit code 2 and one line, which begins with `{PROGRAM}:`. It names
what is wrong, and what to do instead. A wrong environment name is a warning in the log, since others set names, too.
"""


@pytest.mark.real
@pytest.mark.usefixtures("nobody_may_read")
def test_the_answers_are_those_that_were_read(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = "\n".join((INTRO, *rows(capsys, tmp_path), ""))
    golden.holds(ANSWERS, page)


# issue 28, part 1
@pytest.mark.real
def test_the_most_frequent_ones_stand_on_the_page_as_answered(capsys: pytest.CaptureFixture[str]) -> None:
    table = PAGE.partition("| typed | answered |\n|---|---|\n")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `([^`]+)`[^|]*\| `([^`]+)` \|$", table, re.MULTILINE))
    assert len(shown) == len(table.splitlines()) >= 3
    for typed, answered in shown.items():
        printed = answer(capsys, shlex.split(typed)) if typed in COMMAND_LINES else refusal(typed)
        assert printed.partition(" (see ")[0] == answered
