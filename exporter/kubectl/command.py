"""`kubectl-gpu`, which kubectl runs as `kubectl gpu`.

Tests: tests/kubectl/test_kubectl_gpu.py.
"""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from exporter import __version__
from exporter.bundle.bundle_span import seconds_of
from exporter.cli.main import EXIT_FAILED, run_group
from exporter.errors import ConfigError, ExporterError
from exporter.kubectl import device_holders, places, why
from exporter.kubectl.binary import Kubectl, KubectlRefusal
from exporter.lenient import AnyObject, mapping, text
from exporter.model.device_row import DeviceRow, as_object
from exporter.report.command import make, report
from exporter.top.command import show, top
from exporter.top.transport import Gone, TopReader
from exporter.wording import escaped, listed

PROGRAM = "kubectl gpu"
_SHOW = "pod-gpu-metrics-exporter bundle show"
_MOST_QUEUES = 10
# kubectl's own flags, which it gets. (--request-timeout would become a parameter of the request to the exporter.)
_OF_KUBECTL = ("kubeconfig", "context", "cluster", "user", "as", "as-group")
_Command = TypeVar("_Command", bound=Callable[..., Any])


def _where(command: _Command) -> _Command:
    """Add the flags that choose the cluster, the namespace and the exporter."""
    for name in reversed(_OF_KUBECTL):
        is_hidden = name not in _OF_KUBECTL[:2]
        command = click.option(f"--{name}", metavar="VALUE", help="kubectl's own flag.", hidden=is_hidden)(command)
    named = "The exporter's namespace or Service, if there are several exporters or none is found."
    command = click.option(
        places.FLAG, "exporter", metavar="NAMESPACE[/SERVICE]", envvar="KUBECTL_GPU_EXPORTER", help=named
    )(command)
    command = click.option("-A", "--all-namespaces", is_flag=True, help="Pods of all namespaces.")(command)
    return click.option("-n", "--namespace", metavar="NAMESPACE", help="Pods of this namespace.")(command)


def _output(command: _Command) -> _Command:
    command = click.option("--json", "output", flag_value="json", help="The same as -o json.")(command)
    return click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON instead of a table.")(command)


def _without_exporter(command: _Command) -> _Command:
    """Add the flags that ask the dcgm-exporters of the cluster instead of this project's exporter."""
    waits = "How long --nothing-installed waits for pages. Default: 2s."
    command = click.option("--wait", metavar="DURATION", default="2s", help=waits)(command)
    asks = "Ask the dcgm-exporters of the cluster. This project's exporter need not be installed."
    return click.option("--nothing-installed", is_flag=True, help=asks)(command)


class _Asked:
    """The flags before and after the command's name. `own_namespace` is that of a pod which is given by name alone."""

    def __init__(self, given: AnyObject) -> None:
        context = click.get_current_context()
        before = context.parent.params if context.parent else {}
        flags = {name: given.get(name) or value for name, value in before.items()}
        of_kubectl = {name: flags[name.replace("-", "_")] for name in _OF_KUBECTL}
        self.kubectl = Kubectl(tuple(f"--{name}={value}" for name, value in of_kubectl.items() if value))
        self.exporter: str | None = flags["exporter"]
        self.is_any = flags["all_namespaces"]
        self.namespace: str = "" if self.is_any else flags["namespace"] or ""
        self.wait: str | None = given["wait"] if given.get("nothing_installed") else None

    def own_namespace(self) -> str:
        return "" if self.is_any else self.namespace or self.kubectl.namespace()

    def elsewhere(self, before: str = "") -> str:
        """What shows more than one namespace, with words before it; "" if all are looked at already."""
        return "" if self.is_any else f"{before}-A looks in all namespaces"

    def reader(self, *, of_pods_in: str = "") -> TopReader:
        """The reader of the exporter, or of dcgm-exporters; of all devices, or those of pods in a namespace."""
        if self.wait is None:
            reader = places.locate(self.kubectl, self.exporter)
            return places.NamespaceReader(reader, of_pods_in) if of_pods_in else reader
        from exporter.kubectl import without_exporter  # noqa: PLC0415 - what reads pages takes 0.1 s to import

        return without_exporter.reader(self.kubectl, self.exporter, self.wait, of_pods_in)


@click.group()
@_where
@click.version_option(__version__, prog_name=PROGRAM)
def commands(**_: Any) -> None:  # noqa: ANN401 - click's way
    """GPUs and the pods that hold them, from pod-gpu-metrics-exporter in the cluster of your kubeconfig.

    kubectl asks through the API server's proxy. You need the right to `get` services/proxy or pods/proxy in the
    exporter's namespace. The plugin asks the cluster role if there is one, else the exporter of each node. Without an
    exporter, top, who and idle can ask dcgm-exporters: --nothing-installed.
    """


def _also(command: click.Command, *without: str) -> Callable[[_Command], _Command]:
    """Add the flags of one of the exporter's own commands, except those that say whom to ask."""

    def decorate(function: _Command) -> _Command:
        # click itself gathers a function's options here, until it makes the command
        params = [param for param in reversed(command.params) if param.name not in without]
        function.__click_params__ = params  # type: ignore[attr-defined]
        function.__doc__ = command.help
        return function

    return decorate


def _own(command: click.Command, given: AnyObject) -> dict[str, Any]:
    return {name: given[name] for param in command.params if (name := param.name or "") in given}


@commands.command("top", epilog=top.epilog)
@_where
@_output
@_without_exporter
@_also(top, "url", "http_config", "as_json")
def top_of_cluster(*, output: str | None, **given: Any) -> None:  # noqa: ANN401, D103 - see `commands`, `_also`
    asked = _Asked(given)
    reader = asked.reader(of_pods_in=asked.namespace)
    show(lambda: reader, as_json=bool(output), **_own(top, given))


@commands.command("report")
@click.option("--prometheus", metavar="NAMESPACE/SERVICE[:PORT]", help="Its Service. Default: the only one there is.")
@_where
@_also(report, "prometheus", "http_config")
def report_of_cluster(*, prometheus: str | None, **given: Any) -> None:  # noqa: ANN401, D103 - as above
    if prometheus and not all(prometheus.partition("/")):
        raise ConfigError(f"--prometheus: {prometheus!r} is not allowed; it takes NAMESPACE/SERVICE[:PORT]")
    kubectl = _Asked(given).kubectl
    make(lambda seconds: places.prometheus_of(kubectl, prometheus, seconds), **_own(report, given))


@commands.command()
@click.argument("name", metavar="POD|NODE|GPU")
@_where
@_output
@_without_exporter
def who(*, name: str, output: str | None, **given: Any) -> None:  # noqa: ANN401 - see `commands`
    """Say which devices a pod or a node has, or who holds a GPU: since when, how busy, how healthy.

    A pod is NAME (in your namespace) or NAMESPACE/NAME, a GPU its UUID or NODE/INDEX. pod/NAME and node/NAME work, too.
    """
    asked = _Asked(given)
    rows = _rows(asked.reader())
    namespace = asked.own_namespace()
    chosen = device_holders.who(rows, name, namespace) or device_holders.may_hold(rows, name, namespace)
    if not chosen:
        where = asked.namespace or ("all namespaces" if asked.is_any else "your namespace")
        remedies = [f"{PROGRAM} why {name} says why a pod has none"] if asked.wait is None else []
        remedies += [asked.elsewhere()] if asked.elsewhere() else []
        arrow = " -> " if remedies else ""
        raise ExporterError(
            f"{name}: no pod in {where} that holds a GPU, no node and no GPU{arrow}{'; '.join(remedies)}"
        )
    _write([*map(as_object, chosen)], output, device_holders.table(chosen, rows))


@commands.command()
@_where
@_output
@_without_exporter
def idle(*, output: str | None, **given: Any) -> None:  # noqa: ANN401 - see `commands`
    """List the devices that containers hold and do not use, the longest idle first."""
    asked = _Asked(given)
    rows = _rows(asked.reader())
    chosen = device_holders.idle(rows, asked.namespace)
    words = device_holders.table(chosen, rows, is_idle=True) if chosen else "No device that a container holds is idle."
    _write([*map(as_object, chosen)], output, words)


@commands.command()
@click.argument("name", metavar="[QUEUE]", required=False)
@_where
@_output
def queue(*, name: str | None, output: str | None, **given: Any) -> None:  # noqa: ANN401 - see `commands`
    """Say what each queue may have, and what its pods hold, use, leave idle and wait for. With QUEUE, pod by pod.

    Quotas are those of Kueue's ClusterQueues and KAI Scheduler's queues, as far as you may list them. QUEUE may be a
    LocalQueue: NAME in your namespace, or NAMESPACE/NAME.
    """
    from exporter.kubectl import queue_lookup, queue_table  # noqa: PLC0415 - the other commands know no queues

    asked = _Asked(given)
    rows = [row for row in _rows(asked.reader()) if asked.namespace in ("", row.namespace)]
    read = queue_lookup.read_queues(asked.kubectl, asked.namespace)
    lines = queue_table.lines_of(rows, read)
    if name is not None:
        namespace = asked.own_namespace()
        named = [line.name for line in lines if line.name]
        lines = [line for line in lines if line.is_called(name, namespace)]
        if not lines:
            there = f"there are {listed(named, _MOST_QUEUES)}" if named else "no pod here names one"
            raise ExporterError(f"{name}: no such queue -> {there}{asked.elsewhere('; ')}")
    for words in read.not_read:
        print(escaped(f"not read: {words}"), file=sys.stderr)
    if asked.namespace:
        print(escaped(f"Of pods only those of the namespace {asked.namespace} are counted."), file=sys.stderr)
    content = {"queues": [line.as_json() for line in lines], "not_read": read.not_read}
    _write(content, output, queue_table.table(lines, datetime.now(UTC), with_pods=name is not None))


@commands.command("why")
@click.argument("pod", metavar="POD")
@_where
@_output
def why_pod(*, pod: str, output: str | None, **given: Any) -> None:  # noqa: ANN401 - see `commands`
    """Say why a pod has GPU metrics or none: what `doctor` on its node says of the pod and its devices.

    POD is NAME (in your namespace) or NAMESPACE/NAME. The exit code is 1 if something is wrong.
    """
    asked = _Asked(given)
    first, _, name = pod.removeprefix("pod/").rpartition("/")
    namespace = first or asked.own_namespace() or asked.kubectl.namespace()
    item = asked.kubectl.item(f"/api/v1/namespaces/{namespace}/pods/{name}")
    node = text(mapping(item, "spec"), "nodeName")
    diagnosis = why.before_the_node(item)
    if diagnosis is None:
        diagnosis = why.explain(item, _of_node(asked, node))
    elif why.asks_after_its_end(item):
        with suppress(ExporterError):  # what is known without the node stands without it
            diagnosis = why.with_findings_of_node(diagnosis, item, _of_node(asked, node))
    _write(diagnosis.as_json(), output, diagnosis.render(is_of_node=False))
    if not diagnosis.works():
        sys.exit(EXIT_FAILED)


@commands.command()
@click.argument("name", metavar="POD|NODE")
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--for", "duration", metavar="DURATION", help="Look every 5 s for this long, at most 10m. Default: once.")
@click.option("--plain", is_flag=True, help="Keep all names, such as those of pods and nodes.")
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
@_where
def bundle(*, name: str, file: str | None, duration: str | None, plain: bool, force: bool, **given: Any) -> None:  # noqa: ANN401 - see `commands`
    """Write a bundle for a bug report: what the exporter on a node reads and says, with names replaced.

    A pod's name means the node of that pod. The default FILE is gpu-bundle-DATE-TIME.tar.gz, in UTC. It has at most
    10 MiB. doctor makes the bundle in the exporter's pod, by kubectl exec. If doctor cannot run there, the bundle has
    the pod's log, and what the API server and the exporter answer. You can read it, but not replay it.
    """
    from exporter.kubectl import node_bundle  # noqa: PLC0415 - the other commands make no bundle

    asked = _Asked(given)
    for_seconds = seconds_of(duration)
    node = _node_of(asked, name)
    to = Path(file or f"gpu-bundle-{datetime.now(UTC):%Y%m%d-%H%M}.tar.gz")
    if to.exists() and not force:
        raise ExporterError(f"{to} is there already -> give another name, or --force")
    if not to.parent.is_dir():
        raise ExporterError(f"{to} cannot be written: there is no folder {to.parent}")
    pods = places.pods_of_node(asked.kubectl, (asked.exporter or "").partition("/")[0], node)
    if not pods:
        raise Gone(f"no exporter runs on the node {node} -> does the DaemonSet's nodeSelector leave it out?")
    say = partial(print, file=sys.stderr)
    lasts = f" for {duration}" if duration else ""
    say(f"Collecting{lasts} on the node {node}. The file has at most 10 MiB.")
    of_node = node_bundle.NodeBundle(
        kubectl=asked.kubectl, pod=pods[-1], duration=duration or "", for_seconds=for_seconds, is_plain=plain, say=say
    )
    size = node_bundle.write(of_node.collect(), to, may_replace=force)
    names = "names are kept (--plain)" if plain else "names are replaced"
    print(f"Wrote the bundle to {to}: {size / 1024:.0f} KiB, {names}. Look at it before you send it: {_SHOW} {to}")


def _node_of(asked: _Asked, name: str) -> str:
    """The node that a name means: a pod's, if there is such a pod. Raises Gone."""
    kind, _, bare = name.partition("/")
    if kind in ("node", "nodes", "no") and bare:
        return bare
    namespace, _, pod = name.removeprefix("pod/").rpartition("/")
    namespace = namespace or asked.own_namespace() or asked.kubectl.namespace()
    try:
        item = asked.kubectl.item(f"/api/v1/namespaces/{namespace}/pods/{pod}")
    except KubectlRefusal as error:
        if "/" in name or error.reason not in ("NotFound", "Forbidden"):
            raise
        return name
    node = text(mapping(item, "spec"), "nodeName")
    if not node:
        raise ExporterError(f"the pod {namespace}/{pod} is on no node yet -> {PROGRAM} why {name} says why")
    return node


def _of_node(asked: _Asked, node: str) -> AnyObject:
    """The /debug/mapping of a node's exporter."""
    namespace = (asked.exporter or "").partition("/")[0]
    pods = places.node_exporters(asked.kubectl, namespace, fieldSelector=f"spec.nodeName={node}")
    if node not in pods:
        raise Gone(f"no exporter runs on the node {node} -> does the DaemonSet's nodeSelector leave it out?")
    return places.reader_of_pod(asked.kubectl, pods[node]).about()


def _rows(reader: TopReader) -> Sequence[DeviceRow]:
    """The rows of /container/metrics. Missing nodes are named on the standard error."""
    answer = reader.ask("devices")
    if answer.shown.trouble:
        raise ExporterError(f"{answer.shown.url}: {answer.shown.trouble}")
    for line in device_holders.missing(answer.shown.missing):
        print(line, file=sys.stderr)
    return answer.rows


def _write(content: object, output: str | None, words: str) -> None:
    print(json.dumps(content, indent=2) if output else words.removesuffix("\n"))


def main() -> None:
    """Run the command line, and end with its exit code."""
    sys.exit(run_group(commands, sys.argv[1:], PROGRAM))


def complete() -> None:
    """Print the words that may complete a command line: `kubectl_complete-gpu`, which kubectl's own completion runs."""
    from click.shell_completion import ShellComplete  # noqa: PLC0415 - only completion needs it

    *words, last = sys.argv[1:] or [""]
    for item in ShellComplete(commands, {}, PROGRAM, "").get_completions(words, last):
        print(item.value)
    print(":4")  # tells cobra to offer no file names
