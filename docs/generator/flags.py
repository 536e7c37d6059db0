"""docs/flags.md: every command, and every flag with its value, its default and the names that no rule gives."""

import re
from collections.abc import Iterator, Mapping

import click

from docs.generator.markdown import code, document, prose, sentence, table
from exporter.cli.commands import COMMANDS, command_named
from exporter.config import cluster_settings, node_settings, operator_settings
from exporter.config.environment import CONFIG_FILE
from exporter.config.settings import Setting, settings_of

_INTRO = """\
A setting is a flag, an environment name and a key of a YAML file:

```
pod-gpu-metrics-exporter serve --dcgm.timeout 3s
POD_GPU_EXPORTER_DCGM_TIMEOUT=3s pod-gpu-metrics-exporter serve
pod-gpu-metrics-exporter serve --config.file /etc/gpu-metrics.yaml    # dcgm.timeout: 3s
```

- The flag wins over the environment, the environment over the file, the file over the default (in parentheses).
- The environment name is `POD_GPU_EXPORTER_` and the flag in capitals, with `_` for `.` and `-`. A second name is in
  the flag's row; the first wins over it. The keys of the file are flat (`dcgm.timeout`) or nested.
- `…` after a flag: repeatable. In the environment its values are comma-separated, as in its default.
- A wrong flag, key or value, or a key that is there twice, ends the program with exit code 2 and one line that says
  what is allowed. An unknown `POD_GPU_EXPORTER_` name is ignored with a warning.
- `SIGHUP`, or a change in a file that a flag names, reloads the configuration while scrapes go on. A wrong one is
  refused, logged and counted; the old one stays. Only `--web.listen-address` and `--keda.listen-address` need a
  restart.
- *DURATION*: 500ms, 5s or 1m. *FILE*, *PATH*: absolute. *REGEX*: of the whole name."""
_OF_NODE = """\
`serve` and `healthcheck` take all of them; `textfile` all but `--web.…` and `--accounting.…`; `demo` all but
`--kubelet.socket` and `--dcgm.url`; `doctor` all, and needs none where an exporter runs."""
_OF_CLUSTER = """\
[`cluster`](cluster.md) takes these, and a node's `--web.…`, `--kubernetes.…` and `--log.…`."""
_OF_OPERATOR = """\
[`operator`](operator.md) takes these, and the same of a node's."""
# the pages that show what a command's own flags do
_PAGES = {
    "demo": "getting-started.md#the-demo",
    "textfile": "scrape.md",
    "top": "kubectl.md#top-gpus-and-their-pods-in-a-terminal",
    "report": "report.md",
    "doctor": "doctor.md",
    "bundle": "doctor.md",
    "device-access": "troubleshooting.md#nvidias-devices-cannot-be-opened",
}
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
    "probe": "[the probe](cuda.md#the-cuda-probe)",
    "labels": "[Labels from pods](devices.md#labels-from-pods); without owners: [how to"
    " join](promql.md#without-owners-on-samples), [what it saves](cluster.md#what-pods-that-come-and-go-cost)",
    "pods": "[Labels from pods](devices.md#labels-from-pods)",
    "allocators": "[Rights by allocator](install.md#allocators)",
    "sharing": "[Shared GPUs](sharing.md#what-each-owners-row-has)",
    "families": "[4.8 and 4.9](migration.md#from-dcgm-exporter-48-to-49)",
    "kernel_log": "[What it takes](install.md#the-kernels-log)",
    "accounting": "[the accounts](sharing.md#accounts), [over a restart](sharing.md#counters-that-outlive-a-restart)",
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
        "## Commands",
        table(("command", ""), commands),
        "Without a command, `serve` runs. `--help` after a command shows what is used most, with examples; `--help-all`"
        f" every flag. `--config.file` ({code(CONFIG_FILE)}) goes with all but `top`, `report` and `device-access`.",
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
        "They have no environment name, and no key in the file. `--help-all` says more of each.",
        *_own_flags(),
        "Next: [metrics](metrics.md), [scrape](scrape.md)",
    )


def _first_sentence(name: str) -> str:
    return sentence(" ".join((command_named(name).help or "").partition("\n\n")[0].split()))


def _groups(groups: Mapping[str, type]) -> Iterator[str]:
    for name, group in groups.items():
        yield f"### {name}"
        if name in _MORE:
            yield f"See {_MORE[name]}."
        yield "\n".join(_line(setting) for _, setting in settings_of(group))


def _line(setting: Setting) -> str:
    more = " …" if setting.repeatable else ""
    flag = f"`{setting.flag} {setting.kind.metavar}{more}`"
    default = f" ({code(setting.default)})" if setting.default else ""
    also = f" Also {code(setting.also_env)}." if setting.also_env else ""
    return f"- {flag}{default}: {prose(setting.help)}{also}"


def _own_flags() -> Iterator[str]:
    for name in COMMANDS:
        flags = [_own_flag(command_named(name), found) for found in _own_options(command_named(name))]
        if flags:
            yield f"### {name}, its own"
            yield f"[What they do]({_PAGES[name]}): {', '.join(flags)}."


def _own_options(command: click.Command) -> Iterator[click.Option]:
    """The options of a command that are no settings."""
    settings = {f"--{name}" for name in _SETTINGS} | {"--config.file"}
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not settings & set(parameter.opts):
            yield parameter


def _own_flag(command: click.Command, option: click.Option) -> str:
    """The flag with its value and its default, as --help-all has them."""
    names, says = option.get_help_record(click.Context(command)) or ("", "")
    default = re.search(r"\[default: (.*?)(?:; [^;\]]*x[^;\]]*)?\]", says)
    return f"`{names.replace(' RANGE', '').replace('INTEGER', 'N')}`" + (f" ({prose(default[1])})" if default else "")
