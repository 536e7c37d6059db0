"""docs/flags.md: every command, and every flag with its environment names, what it takes and its default."""

from collections.abc import Iterator, Mapping, Sequence

import click

from docs.generator.markdown import code, document, prose, sentence, table
from exporter.cli.main import COMMANDS, command_named
from exporter.config import cluster, node, operator
from exporter.config.environment import CONFIG_FILE
from exporter.config.settings import Setting, settings_of

_INTRO = """\
A setting comes from its flag, else from the environment, else from the YAML file that `--config.file` names, else it
has its default. The environment name stands below each flag; a second one is a name that other programs use, too, and
the first wins over it. Of a flag that is repeatable, the environment and the default are comma-separated. The keys of
the file are the flags without leading dashes, flat (`kubelet.socket: /path`) or nested. [The
README](../README.md#configuration) says what a reload does, and how a wrong setting ends."""
_OF_NODE = """\
`serve` and `healthcheck` take all of them; `textfile` takes all but those that begin with `--web.` and `--accounting.`;
`doctor` takes all, and needs none where an exporter runs. `demo` takes all but `--kubelet.socket` and `--dcgm.url`,
which lead to the simulated node."""
_OF_CLUSTER = """\
`cluster` takes these. Those that begin with `--web.`, `--kubernetes.` and `--log.` are the same as a node's. What they
are for: [cluster.md](cluster.md)."""
_OF_OPERATOR = """\
`operator` takes these, and like `cluster` those that begin with `--web.`, `--kubernetes.` and `--log.`. What they are
for: [operator.md](operator.md)."""
_HEADS = ("flag, environment", "takes", "default", "")
_OWN_HEADS = ("flag", "takes", "")
# what there is to read about a group
_MORE = {
    "web": "[Protecting the port](../README.md#protecting-it)",
    "kubelet": "[Other kubelets](install.md#other-kubelets)",
    "devices": "[Whose device is it?](../README.md#whose-device-is-it), [MIG](../README.md#mig),"
    " [claims](../README.md#claims), [other vendors](../README.md#other-vendors)",
    "dcgm": "[Finding dcgm-exporter](../README.md#finding-dcgm-exporter), [without"
    " it](../README.md#without-dcgm-exporter), [a protected one](../README.md#protecting-it)",
    "nvml": "[Measured use](../README.md#measured-use)",
    "processes": "[What it shows](../README.md#processes)",
    "probe": "[What it counts, what it costs, and how to stop it](cuda-probe.md)",
    "labels": "[Labels from pods](../README.md#labels-from-pods)",
    "pods": "[Labels from pods](../README.md#labels-from-pods)",
    "sharing": "[Shared GPUs](../README.md#shared-gpus)",
    "accounting": "[How much did each team use?](../README.md#how-much-did-each-team-use), [Counters that outlive a"
    " restart](../README.md#counters-that-outlive-a-restart)",
    "keda": "[KEDA](cluster.md#keda)",
}
_SETTINGS = {setting.name for setting in (*node.SETTINGS, *cluster.SETTINGS, *operator.SETTINGS)}


def page() -> str:
    """The page."""
    commands = [(code(name), prose(_first_sentence(name))) for name in COMMANDS]
    return document(
        "Flags",
        _INTRO,
        f"Every command but `top`, `report` and `device-access` takes `--config.file` ({code(CONFIG_FILE)}).",
        "## Commands",
        table(("command", ""), commands),
        "Without a command, `serve` runs. `--help` after a command shows its flags, and `--version` the version.",
        "## Settings of a node's exporter",
        _OF_NODE,
        *_groups(node.GROUPS),
        "## Settings of the cluster role",
        _OF_CLUSTER,
        *_groups({name: group for name, group in cluster.GROUPS.items() if name in ("cluster", "keda")}),
        "## Settings of the operator",
        _OF_OPERATOR,
        *_groups({"operator": operator.GROUPS["operator"]}),
        "## Flags of single commands",
        "They have no environment name, and no key in the file.",
        *_own_flags(),
    )


def _first_sentence(name: str) -> str:
    return sentence(" ".join((command_named(name).help or "").partition("\n\n")[0].split()))


def _groups(groups: Mapping[str, type]) -> Iterator[str]:
    for name, group in groups.items():
        yield f"### {name}"
        yield sentence(group.__doc__) + (f" More: {_MORE[name]}." if name in _MORE else "")
        yield table(_HEADS, [_row(setting) for _, setting in settings_of(group)])


def _row(setting: Setting) -> Sequence[str]:
    names = (setting.flag, setting.env, setting.also_env)
    says = f"{setting.help} Repeatable." if setting.repeatable else setting.help
    return (
        "<br>".join(code(name) for name in names if name),
        prose(setting.kind.allowed),
        code(setting.default or ""),
        prose(says),
    )


def _own_flags() -> Iterator[str]:
    for name in COMMANDS:
        rows = [_own_row(command_named(name), found) for found in _own_options(command_named(name))]
        if rows:
            yield f"### {name}, its own"
            yield table(_OWN_HEADS, rows)


def _own_options(command: click.Command) -> Iterator[click.Option]:
    """Those that are no settings."""
    settings = {f"--{name}" for name in _SETTINGS} | {"--config.file"}
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not settings & set(parameter.opts):
            yield parameter


def _own_row(command: click.Command, option: click.Option) -> Sequence[str]:
    names, says = option.get_help_record(click.Context(command)) or ("", "")
    flag, _, takes = names.partition(" ")
    return (code(flag), code(takes.removesuffix(" RANGE")), prose(says))
