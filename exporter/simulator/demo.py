"""`demo`: simulated GPU nodes, the real exporter in front of each, and the cluster role in front of several.

Tests: tests/end_to_end/test_demo_states.py.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from exporter import log, service
from exporter.cli.commands import Help, command
from exporter.cli.options import flags_of, read_config, setting_options
from exporter.config.common import WebSettings
from exporter.config.files import as_yaml
from exporter.config.node_settings import SETTINGS, Config
from exporter.config.parsers import Address
from exporter.errors import ExporterError
from exporter.lenient import AnyObject
from exporter.node.role import NODE
from exporter.service import Service
from exporter.simulator.demo_parts import is_mixed_node, parts_of
from exporter.simulator.demo_texts import say_what_to_open, say_what_to_open_of_nodes
from exporter.simulator.fail_flag import NEVER, Fails, fails_of

if TYPE_CHECKING:
    from exporter.simulator.allocators import SimulatedAllocator
    from exporter.simulator.scheduler import Scheduler
    from exporter.simulator.simulated_node import SimulatedNode

STEP_SECONDS = 5.0
LEAST_STEP_SECONDS = 2.0  # at any --speed, an owner stays long enough for the exporter to read it
PORTS_TO_TRY = 20
MOST_NODES = 50
_LATE_SECONDS = 1.0  # the most by which an allocator's word comes after the kubelet's List
_ALLOCATORS = ("hami", "volcano", "gpushare", "kai", "ascend")
_NO_ASCEND = "--allocator ascend goes with one node, and without --shared, --mig, --claims, --units and --fail"
_WITH_REPLAY = frozenset({"replay", "speed"})
_ALL_IS_RECORDED = "the bundle has the node and its settings; only settings of serve may be given beside it"
_ANY_PORT = Address(host="127.0.0.1", port=0)
# A user of the demo should not have to wait 10 s for a change.
_QUICK = {"cluster.interval": ["2s"], "cluster.max-age": ["10s"]}


def _takes(
    flag: str,
    text: str,
    kind: click.ParamType[Any],
    *names: str,
    default: object = None,
    **more: Any,  # noqa: ANN401 - click's own
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    is_shown = default not in (None, inf)
    return click.option(flag, *names, type=kind, default=default, show_default=is_shown, help=text, **more)


def _read_fails(_: click.Context, __: click.Parameter, value: str | None) -> Fails:
    """Raises click.BadParameter: it is no value of --fail."""
    try:
        return fails_of(value) if value else NEVER
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_HELP = Help(
    says="Simulate GPU nodes with pods that come and go, and serve their metrics.",
    groups={
        "What is simulated": {
            "--nodes": "With more than one, also a cluster role",
            "--gpus": "GPUs of a node. Default: 8",
            "--shared": "Of these, time-sliced",
            "--mig": "Of these, in MIG instances",
            "--claims": "Of these, handed out by DRA",
            "--allocator": "Who chooses GPUs: hami, kai, …",
            "--fail": "After so long a GPU fails; link: an NVLink",
            "--speed": "How much faster pods, or moments, come and go",
            "--replay": "In place of all that: play a bundle",
        },
        "What is served": {
            "--sharing": "What a shared GPU's samples become",
            "--web.listen-address": "Where to listen. Default: :9400",
            "--settings-file": "Write settings for other commands",
        },
    },
    examples=(
        "demo",
        "demo --nodes 5 --speed 10",
        "demo --replay bundle.tar.gz --speed 10",
    ),
    more="--help-all shows all flags, those of serve included.",
)


@command(_HELP)
@_takes(
    "--nodes",
    "With more than one, each has an exporter on a port of its own, and the cluster role answers for all.",
    click.IntRange(1, MOST_NODES),
    default=1,
)
@_takes("--gpus", "GPUs of a node.", click.IntRange(0, 64), default=8)
@_takes(
    "--shared",
    "Of these, time-sliced by four.  [default: 2; with --nodes on every eighth node, the fifth first]",
    click.IntRange(0),
)
@_takes(
    "--mig",
    "Of these, cut into 7 MIG instances.  [default: as --shared; 1, if there is one left]",
    click.IntRange(0),
    is_flag=False,
    flag_value=1,
)
@_takes(
    "--claims",
    "Of these, handed out by DRA; of several, the last in instances cut for each claim."
    "  [default: 0, or 3 with --dra on]",
    click.IntRange(0),
)
@_takes("--units", "Of these, handed out by gpu-manager's units.", click.IntRange(0), default=0)
@_takes(
    "--strangers", "Pods that use a GPU which the kubelet did not give them, a GPU each.", click.IntRange(0), default=0
)
@_takes(
    "--stuck",
    "Pairs of pods with two GPUs each: one hangs in a collective, one waits for data. They ignore --speed.",
    click.IntRange(0),
    default=0,
)
@_takes(
    "--allocator",
    "Who hands out the GPUs that are left, and chooses them itself, whatever ids the kubelet picks.",
    click.Choice(_ALLOCATORS),
)
@_takes(
    "--generation",
    "Whose page: dcgm-exporter 1.x (shell), 2.x to 4.8.2, 4.8.3 and later, 4.9 with its new names.",
    click.Choice(("1", "3", "4.8", "4.9")),
    default="3",
)
@_takes(
    "--counters",
    "What dcgm-exporter measures: its default counters file, or the fuller one of daemonset.yaml.",
    click.Choice(("default", "full")),
    default="default",
)
@_takes(
    "--speed",
    "How much faster the pods live, or the moments of a bundle follow. Watts and joules stay those of real time.",
    click.FloatRange(0.1, 1000),
    default=1.0,
)
@_takes(
    "--collect-interval",
    "How often the simulated dcgm-exporter reads the GPUs, as its flag of this name says; 0: for every scrape.",
    click.FloatRange(0, 3600),
    default=30.0,
    metavar="SECONDS",
)
@_takes(
    "--settings-file",
    "Write this file: with --config.file FILE other commands see the simulated node, too.",
    click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
)
@_takes(
    "--fail",
    "After so many seconds, 30 if none are given, a GPU falls off the bus while a pod holds it. With --nodes one does"
    " now and then in any case. With link or link:SECONDS an NVLink of the GPU goes bad instead, and the page has the"
    " counters of each link, beside all of --counters full.",
    click.STRING,
    "fails",
    is_flag=False,
    flag_value="gpu",
    metavar="SECONDS",
    callback=_read_fails,
)
@_takes("--seed", "The same seed makes the same node.", click.INT, default=1)
@_takes(
    "--replay",
    "Play a bundle of doctor --bundle in place of a simulated node: kubelet, pages and all else answer as they did.",
    click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.tar.gz",
)
@setting_options(without=("kubelet.socket", "dcgm.url"))
def demo(
    *,
    nodes: int,
    gpus: int,
    shared: int | None,
    mig: int | None,
    claims: int | None,
    units: int,
    strangers: int,
    stuck: int,
    allocator: str | None,
    generation: str,
    counters: str,
    speed: float,
    seed: int,
    collect_interval: float,
    settings_file: Path | None,
    fails: Fails,
    **given: Any,  # noqa: ANN401 - see serve
) -> None:
    """Simulate GPU nodes with pods that come and go, and serve their metrics. Needs no GPU and no Kubernetes."""
    if _has_replayed(speed, given):
        return
    # imported only here: the node exporter must not carry the simulator's memory
    from exporter.simulator.simulated_node import SimulatedNode  # noqa: PLC0415
    from exporter.simulator.world import World  # noqa: PLC0415

    is_alone = nodes == 1
    _check_flags(nodes, settings_file, given)
    _check_ascend(allocator, nodes > 1 or any((shared, mig, claims, units, fails != NEVER)))
    of_node = {**_counters(counters, fails), "with_parents": not is_alone, "collect_seconds": collect_interval}
    simulated = []
    for number in range(nodes):
        is_mixed = not allocator and (is_alone or is_mixed_node(number, gpus))
        parts = parts_of(gpus, shared, mig, claims, units, is_mixed=is_mixed, is_dra_on="on" in (given["dra"] or ()))
        parts |= {"allocator": _allocator_of(allocator, seed + number), "seed": seed + number, "speed": speed}
        name = socket.gethostname() if is_alone else f"gpu-node-{number + 1}"
        of_node["fails"] = NEVER if number else fails
        simulated.append(SimulatedNode(World(gpus=gpus, **parts), name, generation, **of_node))
    asyncio.run(_demo(simulated, seed, strangers, stuck, speed, given, settings_file))


def _counters(counters: str, fails: Fails) -> dict[str, Any]:
    """What a node's page has: of links that go bad, all."""
    has_bad_link = fails.link_seconds < inf
    return {"counters": "full" if has_bad_link else counters, "with_links": has_bad_link}


def _has_replayed(speed: float, given: dict[str, Any]) -> bool:
    """Play a bundle, if one is given. Raises click.UsageError: another flag shapes a simulated node."""
    path: Path | None = given.pop("replay")
    if path is None:
        return False
    from exporter.simulator.replay.replay_demo import replay  # noqa: PLC0415 - as in `demo`

    context = click.get_current_context()
    settings = {setting.parameter for setting in SETTINGS}
    for parameter in context.command.params:
        name = parameter.name or ""
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name not in settings | _WITH_REPLAY:
            raise click.UsageError(f"{parameter.opts[0]} does not go with --replay: {_ALL_IS_RECORDED}")
    listens_on = partial(_on_a_free_port, given=given)
    asyncio.run(replay(path, speed, flags_of(given, SETTINGS, {}), listens_on))
    return True


def _check_flags(nodes: int, settings_file: Path | None, given: AnyObject) -> None:
    if nodes > 1 and settings_file:
        raise click.UsageError("--settings-file goes with one node: it says where a kubelet and dcgm-exporter are")
    if nodes > 1 and "off" in given["dcgm_mode"]:
        raise click.UsageError("--dcgm.mode off goes with one node: a process has one NVML")


def _check_ascend(allocator: str | None, is_mixed: bool) -> None:
    if allocator == "ascend" and is_mixed:
        raise click.UsageError(_NO_ASCEND)


def _allocator_of(name: str | None, seed: int) -> "SimulatedAllocator | None":
    if name is None:
        return None
    from exporter.simulator.allocators import ALLOCATORS, Unkindness  # noqa: PLC0415 - as in `demo`

    return ALLOCATORS[name](unkindness=Unkindness(late_seconds=_LATE_SECONDS), seed=seed)


async def _demo(
    simulated: Sequence["SimulatedNode"],
    seed: int,
    strangers: int,
    stuck: int,
    speed: float,
    given: dict[str, Any],
    settings_file: Path | None,
) -> None:
    """Fill the nodes with pods, and serve them until the program ends."""
    from exporter.simulator.scheduler import Scheduler  # noqa: PLC0415 - as in `demo`

    for node in simulated:
        node.world.add_stuck(stuck)
    scheduler = Scheduler([node.world for node in simulated], [node.failure for node in simulated], seed=seed)
    step_seconds = max(STEP_SECONDS / speed, LEAST_STEP_SECONDS)
    for node in simulated:
        node.has_device_checkpoint = bool(node.world.allocator)
        node.world.add_strangers(strangers)
    if len(simulated) == 1:
        await _demo_of_node(simulated[0], scheduler, step_seconds, given, settings_file)
    else:
        await _demo_of_nodes(simulated, scheduler, step_seconds, given)


async def _demo_of_node(
    simulated: "SimulatedNode",
    scheduler: "Scheduler",
    step_seconds: float,
    given: dict[str, Any],
    settings_file: Path | None,
) -> None:
    """Run the exporter in front of one simulated node. Raises UsageError: no NVML can be built, and no page is."""
    try:
        await simulated.start(live=scheduler.live, step_seconds=step_seconds)
        if simulated.has_nvidia:
            simulated.nvml.load()
        elif "off" in given["dcgm_mode"]:
            raise click.UsageError("--dcgm.mode off goes with NVIDIA's GPUs: NVML knows no others")
        if "off" in given["dcgm_mode"] and not simulated.nvml.loaded:
            raise click.UsageError("--dcgm.mode off needs gcc here: the demo builds a stand-in for NVML with it")
        config = _on_a_free_port(_config(simulated, given), given)
        log.start_logging(config.log.level, config.log.format)
        addresses = config.web.listen_addresses
        if settings_file:
            _write_settings(settings_file, simulated)

        def reread() -> Config:
            return _listening_on(_config(simulated, given), addresses)

        say = partial(say_what_to_open, has_events=simulated.has_nvidia)
        await service.serve(config, NODE, on_listening=say, reread=reread)
    finally:
        await simulated.stop()


def _write_settings(path: Path, simulated: "SimulatedNode") -> None:
    """Write the places of the simulated kubelet and dcgm-exporter to a file for --config.file."""
    places = {
        "kubelet.socket": str(simulated.socket),
        "dcgm.url": simulated.url,
        "kubelet.pods-socket": str(simulated.pods_socket),
        "kubernetes.url": simulated.api_url,
        "inventory.file": str(simulated.inventory_file),
        **simulated.settings,
    }
    try:
        path.write_text(as_yaml(places))
    except OSError as error:
        raise ExporterError(f"--settings-file: {path} cannot be written: {error.strerror}") from error


def _config(simulated: "SimulatedNode", given: dict[str, Any]) -> Config:
    # if the user asks for NVML, nothing else may name the MIG instances
    root = simulated.root / "empty" if given.get("nvml_mode") else simulated.root
    return replace(read_config(given, **_where_to_ask(simulated, given)), root=str(root))


def _where_to_ask(simulated: "SimulatedNode", given: dict[str, Any]) -> dict[str, str]:
    """The addresses of the simulated node, and settings that use all of it. The command line's settings win."""
    places = {
        # a real NVML would report the GPUs of this machine
        "nvml_mode": "auto" if simulated.nvml.loaded else "off",
        "kubelet_pods_socket": str(simulated.pods_socket),
        "kubernetes_url": simulated.api_url,
        "kernel_log_mode": "on",
        **{flag.replace("-", "_").replace(".", "_"): value for flag, value in simulated.settings.items()},
    }
    usual = {name: value for name, value in places.items() if not given.get(name)}
    page = {} if "off" in (given.get("dcgm_mode") or ()) else {"dcgm_url": simulated.url}
    return {"kubelet_socket": str(simulated.socket), **page, **usual}


def _on_a_free_port(config: Config, given: dict[str, Any]) -> Config:
    """The configuration with a free port: the next one, if another program has this one and the user named none."""
    if given["web_listen_address"]:
        return config
    (wanted,) = config.web.listen_addresses[:1]
    for port in range(wanted.port, wanted.port + PORTS_TO_TRY):
        try:
            with socket.create_server((wanted.host, port)):
                return _listening_on(config, (Address(host=wanted.host, port=port),))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                break
    return config


def _listening_on(config: Config, addresses: tuple[Address, ...]) -> Config:
    return replace(config, web=replace(config.web, listen_addresses=addresses))


async def _demo_of_nodes(
    nodes: Sequence["SimulatedNode"], scheduler: "Scheduler", step_seconds: float, given: dict[str, Any]
) -> None:
    """Run an exporter in front of each simulated node, and the cluster role in front of all, until stopped."""
    from exporter.cluster.role import CLUSTER  # noqa: PLC0415 - as the simulator
    from exporter.config.cluster_settings import load_cluster  # noqa: PLC0415

    def config_of(node: "SimulatedNode") -> Config:
        # each node has its own name, whatever the command line says
        return _config(node, {**given, "node_name": (node.api.node_name,)})

    of_log = read_config(given)
    # with many nodes, a line for each source that answers would push the addresses to open off the screen
    level = "warn" if of_log.is_default("log.level") else of_log.log.level
    log.start_logging(level, of_log.log.format)
    async with running(nodes, config_of, scheduler.live, step_seconds) as (of_node, urls):
        flags = {"cluster.node": [f"{name}={url}" for name, url in urls.items()], **_QUICK}
        config = load_cluster(flags, {}, None)
        config = replace(config, log=of_node.log, web=_on_a_free_port(of_node, given).web)
        say = partial(say_what_to_open_of_nodes, urls, scheduler.services)
        await service.serve(config, CLUSTER, on_listening=say)


@asynccontextmanager
async def running(
    nodes: Sequence["SimulatedNode"],
    config_of: "Callable[[SimulatedNode], Config]",
    live: Callable[[], None] | None = None,
    step_seconds: float = inf,
) -> AsyncIterator[tuple[Config, dict[str, str]]]:
    """Run the nodes, each with an exporter on a loopback port: the configuration of one, and the URLs by names."""
    urls: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        for number, node in enumerate(nodes):
            stack.push_async_callback(node.stop)
            # the first node drives the pods of all nodes
            await node.start(live=live and (live if not number else lambda: None), step_seconds=step_seconds)
            config = config_of(node)
            # only the cluster role checks the users' passwords
            own = replace(config, web=WebSettings(listen_addresses=(_ANY_PORT,), config_file=None))
            exporter = Service(own, NODE)
            stack.push_async_callback(exporter.close)
            with log.about(node=config.node.name):
                (address,) = await exporter.listen()
            urls[config.node.name] = f"http://{address}"
        yield config, urls
