"""The parsers of settings' texts, which raise ValueError for a text that is not allowed, and the kinds of settings.

Tests: tests/config/test_config.py.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from exporter.reading import compiled

T = TypeVar("T")
W = TypeVar("W", bound=str)

# the shipped rule files, by name
SHIPPED_RULES = {path.stem: path for path in sorted((Path(__file__).parent / "device_rules").glob("*.yaml"))}
LABEL_SETS = {"pod": ("pod", "namespace", "container"), "legacy": ("pod_name", "pod_namespace", "container_name")}
# Labels that name a sample's device. An owner's label must not have one of these names.
DEVICE_LABELS = frozenset((
    "UUID", "uuid", "gpu_uuid", "gpu", "device", "modelName", "model_name", "GPU_I_ID", "GPU_I_PROFILE", "vgpu",
    "gpu_shared", "pod_uid",
))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address to listen on. An empty host means every address of the machine."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def without_secrets(text: str) -> str:
    """A text without the parts of its URLs that may be secret: user, password, and all after a question mark."""
    return re.sub(r"(//[^\s?'\"]*)\?[^\s'\"]*", r"\1?…", re.sub(r"//[^/@\s]*@", "//", text))


def of_form(pattern: str, convert: Callable[[str], T]) -> Callable[[str], T]:
    """A parser that takes texts of this form, and converts them by `convert`."""
    form = re.compile(pattern, re.DOTALL)

    def parse(text: str) -> T:
        if not form.fullmatch(text):
            raise ValueError
        return convert(text)

    return parse


not_empty = of_form(r".*\S.*", str)
resource_glob = of_form(r"[^\s,]+", str)  # no resource has a comma, which separates resources in the environment
absolute_path = of_form(r"/[^\0]*", str)
family_name = of_form(r"[a-zA-Z_:][a-zA-Z0-9_:]*", str)
namespace = of_form(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", str)  # a DNS label (RFC 1123)
image = of_form(r"\S{1,512}", str)  # registries have no common rule for names
positive_integer = of_form(r"0*[1-9][0-9]*", int)
ratio = of_form(r"0+(?:\.[0-9]+)?|0*1(?:\.0+)?", float)
_MATCHER = r'[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n]|\\[^\n])*"'
# PromQL's matchers of labels, comma-separated: the text between the braces of a selector
matchers = of_form(rf"\s*{_MATCHER}(?:\s*,\s*{_MATCHER})*\s*", str.strip)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_DURATION_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
MAX_PORT = 65535
# sockaddr_un.sun_path holds 108 bytes with its closing NUL
MAX_SOCKET_PATH_BYTES = 107


def duration(text: str) -> float:
    """A duration such as `500ms`, `5s`, `1m` or `1h`, in seconds."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError
    return float(match[1]) * _DURATION_SECONDS[match[2]]


def positive_duration(text: str) -> float:
    """A duration above 0, in seconds."""
    seconds = duration(text)
    if not seconds:
        raise ValueError
    return seconds


def address(text: str) -> Address:
    """An address such as `:9400`, `127.0.0.1:9400` or `[::1]:9400`. Port 0 is any free port."""
    host, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit()) or int(port) > MAX_PORT:
        raise ValueError
    if host.startswith("[") and host.endswith("]"):
        host = str(ip_address(host[1:-1]))
    elif ":" in host or "/" in host or "@" in host:
        raise ValueError
    return Address(host=host, port=int(port))


def url(text: str) -> str:
    """An absolute http or https URL."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment or re.search(r"\s|,https?:", text):
        raise ValueError
    if parts.port is not None and not 0 < parts.port <= MAX_PORT:
        raise ValueError
    parts.hostname.encode("idna")  # raises UnicodeError, a ValueError, for a name that no resolver can be asked for
    # `HTTPS:` becomes `https:`, since the callers look for that
    return parts.scheme + text[len(parts.scheme) :] if parts.path else parts._replace(path="/metrics").geturl()


def base_url(text: str) -> str:
    """An absolute http or https URL to which paths are added."""
    parts = urlsplit(url(text))
    if parts.username or parts.password or parts.query:
        raise ValueError
    return parts.scheme + text[len(parts.scheme) :].rstrip("/")


def socket_path(text: str) -> str:
    """A path that fits a unix socket's address. A leading `unix://` is removed."""
    path = text.removeprefix("unix://")
    if not path.startswith("/") or len(path.encode()) > MAX_SOCKET_PATH_BYTES or "\0" in path:
        raise ValueError
    return path


def regex(text: str) -> str:
    """A regular expression. Its users match it with whole names, as Prometheus does."""
    try:
        compiled(text)
    except re.error as error:
        raise ValueError from error
    return text


def label_names(text: str) -> tuple[str, str, str]:
    """The names of the owner's labels: `pod`, `legacy` or `pod=x,namespace=y,container=z`."""
    if text in LABEL_SETS:
        return LABEL_SETS[text]
    given = dict(part.partition("=")[::2] for part in text.split(","))
    names = tuple(given.get(role, "") for role in LABEL_SETS["pod"])
    if set(given) != set(LABEL_SETS["pod"]) or len(set(names)) != len(names):
        raise ValueError
    for role, name in given.items():
        known_elsewhere = any(
            name in labels and labels[LABEL_SETS["pod"].index(role)] != name for labels in LABEL_SETS.values()
        )
        if not _LABEL_NAME.fullmatch(name) or name.startswith("__") or name in DEVICE_LABELS or known_elsewhere:
            raise ValueError
    return names[0], names[1], names[2]


Pairs = tuple[tuple[str, str], ...]  # names and values, such as headers
Selector = Pairs
# the labels of dcgm-exporter's pods by its own chart, by NVIDIA's GPU operator and by that operator's variant for DRA
DCGM_EXPORTERS: tuple[Selector, ...] = (
    (("app.kubernetes.io/name", "dcgm-exporter"),),
    (("app", "nvidia-dcgm-exporter"),),
    (("app", "nvidia-dcgm-exporter-dra"),),
)
# The namespaces of NVIDIA's GPU operator: as its documents install it, on OpenShift, and before its version 1.9.
GPU_OPERATOR_NAMESPACES = ("gpu-operator", "nvidia-gpu-operator", "gpu-operator-resources")
_LABEL_KEY = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")


def selectors(text: str) -> tuple[Selector, ...]:
    """`auto`, or labels such as `k=v` or `k:v`, comma-separated. A pod must have all labels of a selector."""
    return DCGM_EXPORTERS if text == "auto" else (selector(text),)


def selector(text: str) -> Selector:
    """Labels such as `k=v` or `k:v`, comma-separated. A pod must have all of them."""
    requirements = []
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.replace(":", "=", 1).partition("="))
        if "=" not in part.replace(":", "=", 1) or not _LABEL_KEY.fullmatch(name) or not _LABEL_VALUE.fullmatch(value):
            raise ValueError
        requirements.append((name, value))
    return tuple(requirements)


_NODE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def namespaced_name(text: str) -> tuple[str, str]:
    """`NAMESPACE/NAME` of an object whose name is a DNS label, as a Service's is."""
    of, slash, name = text.partition("/")
    if not slash:
        raise ValueError
    return namespace(of), namespace(name)


def node_address(text: str) -> tuple[str, str]:
    """`URL` or `NAME=URL`. Returns the node's name, or "", and the URL, to which paths are added."""
    name, separator, address = text.partition("=")
    if not separator or "/" in name:
        return "", base_url(text)
    if not _NODE_NAME.fullmatch(name):
        raise ValueError
    return name, base_url(address)


def port_or_name(text: str) -> str:
    """A port's number, or the name of a Service's port (a DNS label)."""
    if not text.isdigit():
        return namespace(text)
    if positive_integer(text) > MAX_PORT:
        raise ValueError
    return text


def log_level(text: str) -> str:
    """A level of the log, in any case. `warning` means `warn`, since LOG_LEVEL is often set for other programs, too."""
    level = "warn" if text.lower() == "warning" else text.lower()
    if level not in ("debug", "info", "warn", "error"):
        raise ValueError
    return level


@dataclass(frozen=True, slots=True)
class SettingKind(Generic[T]):
    """The kind of a setting's value.

    Attributes:
        parse: makes the value of a text. Raises ValueError: the text is not allowed.
        allowed: the allowed texts in words, for errors.
        metavar: the value's name in --help.
        is_path: the text is an absolute path, and nothing else.
    """

    parse: Callable[[str], T]
    allowed: str
    metavar: str
    is_path: bool = False


def choice(meanings: Mapping[str, T]) -> SettingKind[T]:
    """The kind of a setting whose text is one of these words, each of which stands for a value."""

    def parse(text: str) -> T:
        if text not in meanings:
            raise ValueError
        return meanings[text]

    *others, last = meanings
    return SettingKind(parse, f"{', '.join(others)} or {last}", "|".join(meanings))


def one_of(*words: W) -> SettingKind[W]:
    """The kind of a setting whose text is one of these words, and whose value is the word."""
    return choice({word: word for word in words})


_A_DURATION = "a duration such as 500ms, 5s or 1m"


def rules_path(text: str) -> str:
    """The path of a rule file. The text is that path, or the name of a shipped file."""
    return str(SHIPPED_RULES[text]) if text in SHIPPED_RULES else absolute_path(text)


DURATION = SettingKind(duration, _A_DURATION, "DURATION")
POSITIVE_DURATION = SettingKind(positive_duration, f"{_A_DURATION}, above 0", "DURATION")
FILE = SettingKind(absolute_path, "an absolute path", "FILE", is_path=True)
RULES = SettingKind(rules_path, f"an absolute path, or one of {', '.join(SHIPPED_RULES)}", "FILE|NAME")
SOCKET = SettingKind(socket_path, f"an absolute path of at most {MAX_SOCKET_PATH_BYTES} bytes", "PATH", is_path=True)
NUMBER = SettingKind(positive_integer, "a whole number above 0", "NUMBER")
RATIO = SettingKind(ratio, "a number from 0 to 1", "RATIO")
REGEX = SettingKind(regex, "a regular expression", "REGEX")
FAMILY = SettingKind(family_name, "a family's name", "NAME")
