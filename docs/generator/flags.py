"""docs/flags.md: every command, and every flag with its environment names, its values and its default."""

from collections.abc import Iterator, Mapping, Sequence

import click

from docs.generator.markdown import code, document, prose, sentence, table
from exporter.cli.commands import COMMANDS, command_named
from exporter.config import cluster_settings, node_settings, operator_settings
from exporter.config.environment import CONFIG_FILE
from exporter.config.settings import Setting, settings_of

_INTRO = """\
A setting comes from its flag, else from the environment, else from the YAML file that `--config.file` names, else it
has its default. The environment name of a flag is `POD_GPU_EXPORTER_` and the flag in capitals, with `_` for `.` and
`-`; it stands below each flag. Where there is a second one, it is a name that other programs use, too, and the first
wins over it. Of a flag that is repeatable, the environment and the default are comma-separated. The keys of the file
are the flags without leading dashes, flat (`kubelet.socket: /path`) or nested. A wrong flag, key or value, or a key
that is there twice, ends the program with exit code 2 and one line that says what is allowed. An environment name
that begins with `POD_GPU_EXPORTER_` but belongs to no setting is ignored with a warning (except those that Kubernetes
makes for Services).

`SIGHUP` reloads the configuration while scrapes go on. So does a change in a file that these flags name, also in a
ConfigMap or a Secret. A configuration that cannot be used is refused, logged and counted, and the old one stays in
force. Only `--web.listen-address` needs a restart."""
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
# the page to read about a group of settings
_MORE = {
    "web": "[Protecting the port](install.md#a-protected-port)",
    "kubelet": "[Other kubelets](install.md#other-kubelets)",
    "devices": "[Whose device is it?](devices.md), [MIG](devices.md#mig),"
    " [claims](devices.md#claims), [other vendors](devices.md#other-vendors)",
    "dcgm": "[Finding dcgm-exporter](scrape.md#finding-dcgm-exporter), [without"
    " it](scrape.md#without-dcgm-exporter), [a protected one](install.md#a-protected-port)",
    "nvml": "[Measured use](sharing.md#measured-use)",
    "processes": "[What it shows](sharing.md#processes)",
    "probe": "[What it counts, what it costs, and how to stop it](cuda.md#the-cuda-probe)",
    "labels": "[Labels from pods](devices.md#labels-from-pods); without owners: [how to"
    " join](promql.md#without-owners-on-samples), [what it saves](cluster.md#what-pods-that-come-and-go-cost)",
    "pods": "[Labels from pods](devices.md#labels-from-pods)",
    "allocators": "[Rights by allocator](install.md#allocators)",
    "sharing": "[Shared GPUs](sharing.md#what-each-owners-row-has)",
    "families": "[The names of 4.8 and 4.9](migration.md#from-dcgm-exporter-48-to-49)",
    "kernel_log": "[What it takes](install.md#the-kernels-log)",
    "accounting": "[How much did each team use?](sharing.md#accounts), [Counters that outlive a"
    " restart](sharing.md#counters-that-outlive-a-restart)",
    "keda": "[KEDA](cluster.md#keda)",
}
_SETTINGS = {
    setting.name for setting in (*node_settings.SETTINGS, *cluster_settings.SETTINGS, *operator_settings.SETTINGS)
}


def page() -> str:
    """The page."""
    commands = [(code(name), prose(_first_sentence(name))) for name in COMMANDS]
    return document(
        "Flags",
        _INTRO,
        f"Every command but `top`, `report` and `device-access` takes `--config.file` ({code(CONFIG_FILE)}).",
        "## Commands",
        table(("command", ""), commands),
        "Without a command, `serve` runs. `--help` after a command shows what of its flags is used most and examples,"
        " `--help-all` every flag; `--version` shows the version. A wrong flag is answered with the"
        " one that was meant ([examples](troubleshooting.md#it-does-not-start)).",
        "## Settings of a node's exporter",
        _OF_NODE,
        *_groups(node_settings.GROUPS),
        "## Settings of the cluster role",
        _OF_CLUSTER,
        *_groups({name: group for name, group in cluster_settings.GROUPS.items() if name in ("cluster", "keda")}),
        "## Settings of the operator",
        _OF_OPERATOR,
        *_groups({"operator": operator_settings.GROUPS["operator"]}),
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
    """The options of a command that are no settings."""
    settings = {f"--{name}" for name in _SETTINGS} | {"--config.file"}
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not settings & set(parameter.opts):
            yield parameter


def _own_row(command: click.Command, option: click.Option) -> Sequence[str]:
    names, says = option.get_help_record(click.Context(command)) or ("", "")
    flag, _, takes = names.partition(" ")
    return (code(flag), code(takes.removesuffix(" RANGE")), prose(says))
