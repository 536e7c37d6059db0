"""A node's configuration: flags, environment and file become one frozen `Config`, or a `ConfigError` of one line.

Precedence: flag > environment > file > default. What can be set is in node.py. Pure: the environment and the file's
content come in as values.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from exporter.config.contradictions import check_together
from exporter.config.environment import dcgm_host, dcgm_path, dcgm_port, doubts, doubts_of_port
from exporter.config.gather import by_name, fields_of, from_flags, gather, parse
from exporter.config.given import Given, by_default
from exporter.config.node import GROUPS, SETTINGS, Config
from exporter.config.pages import DEFAULT_DCGM_URL
from exporter.config.parsers import GPU_OPERATOR_NAMESPACES, LABEL_SETS

_SETTINGS = by_name(SETTINGS)
_OTHER_PAGES = frozenset({"dcgm.file", "dcgm.selector"})


def load(
    flags: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    file: Mapping[str, Any] | None,
    host_name: str,
    config_file: str | None = None,
    own_namespace: str = "",
) -> Config:
    """Put the sources together.

    Args:
        flags: by setting name, the texts given on the command line; a flag that was not given is absent.
        environ: the process environment. Unknown names are ignored, with a doubt: Kubernetes' service links are none.
        file: the parsed `--config.file`, flat (`kubelet.socket: …`) or nested.
        host_name: the default of `--node-name`.
        config_file: the path that `file` was read from.
        own_namespace: the namespace of the service account; POD_NAMESPACE wins over it.

    Raises:
        ConfigError: with one line that names the key, the value and what is allowed.
    """
    given = gather(_SETTINGS, {}, environ, file)
    if host := dcgm_host(environ):
        given.update(host)
        given.pop("dcgm.selector", None)
    given.update(from_flags(flags))
    values = {name: parse(_SETTINGS, name, texts) for name, texts in given.items()}
    following = _following(values, host_name)
    values.update({name: parse(_SETTINGS, name, texts) for name, texts in following.items()})
    values.setdefault("dcgm.selector", ())
    values["dcgm.selector-namespace"] = values.get("dcgm.selector-namespace") or _usual_namespaces(
        environ, own_namespace
    )
    besides: Mapping[str, Mapping[str, object]] = {
        "dcgm": {"port": dcgm_port(environ), "path": dcgm_path(environ)},
        "node": {"is_named": "node-name" in given},
    }
    port_is_used = "dcgm.selector" in given or ("dcgm.url" in given and given["dcgm.url"].where == "DCGM_HOST")
    config = Config(
        **{name: group(**fields_of(group, values), **besides.get(name, {})) for name, group in GROUPS.items()},
        config_file=config_file,
        given=tuple(sorted((given | following).items())),
        doubts=(*doubts(environ, SETTINGS), *doubts_of_port(environ, is_used=port_is_used)),
    )
    check_together(config)
    return config


def _following(values: Mapping[str, object], host_name: str) -> dict[str, Given]:
    """What was not given, and follows from other settings or from the machine."""
    idle = "empty" if values["labels.names"] == LABEL_SETS["pod"] else "omit"
    found = {"node-name": Given("the host name", (host_name,)), "labels.idle": Given("--labels.names", (idle,))}
    if values["dcgm.mode"] != "off" and not values.keys() & _OTHER_PAGES:
        found["dcgm.url"] = by_default("--dcgm.url", DEFAULT_DCGM_URL)
    return {name: texts for name, texts in found.items() if name not in values}


def _usual_namespaces(environ: Mapping[str, str], own_namespace: str) -> tuple[str, ...]:
    """Where only the cluster's administrators make pods: the exporter's own namespace, and the GPU operator's."""
    own = environ.get("POD_NAMESPACE", "").strip() or own_namespace
    return tuple(dict.fromkeys((*((own,) if own else ()), *GPU_OPERATOR_NAMESPACES)))
