"""Settings from environment variables, and doubts about variables that look like mistakes.

Pure: the environment comes in as a value.

Tests: tests/cli/test_mistakes.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from exporter.config.parsers import MAX_PORT, without_secrets
from exporter.config.settings import ENVIRONMENT_PREFIX, Setting, SettingTexts
from exporter.errors import Trouble

CONFIG_FILE = ENVIRONMENT_PREFIX + "CONFIG_FILE"
DEFAULT_DCGM_PORT = 9400
# For a Service called pod-gpu-exporter or pod-gpu-exporter-…, Kubernetes gives variables to every pod of its namespace.
# Their names end like this, after the Service's name.
_SERVICE_LINK = re.compile(
    r"(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)"
)
_LIKE_OURS = re.compile(r"(?:NVIDIA_)?(?:PODS?_?)?GPUS?_?(?:METRICS_?)?EXPORTERS?_+(.+)", re.IGNORECASE)


def settings_from(environ: Mapping[str, str], settings: Sequence[Setting]) -> dict[str, SettingTexts]:
    """The texts that the environment gives, by setting name. Unknown names are left out; `doubts` has them."""
    given: dict[str, SettingTexts] = {}
    api = environ.get("KUBERNETES_SERVICE_HOST", "").strip()
    if api:
        port = environ.get("KUBERNETES_SERVICE_PORT", "").strip() or "443"
        api = f"[{api}]" if ":" in api else api
        given["kubernetes.url"] = SettingTexts("KUBERNETES_SERVICE_HOST", (f"https://{api}:{port}",))
    for setting in settings:
        for name in (setting.also_env, setting.env):  # the exporter's own name wins
            text = environ.get(name, "").strip() if name else ""
            if not text:
                continue
            if name == "HTTP_LISTEN_PORT":
                text = f":{text}"
            values = tuple(part.strip() for part in text.split(",") if part.strip()) if setting.repeatable else (text,)
            given[setting.name] = SettingTexts(name, values)
    return given


def dcgm_host(environ: Mapping[str, str]) -> dict[str, SettingTexts]:
    """--dcgm.url made of DCGM_HOST with its port and path; empty without DCGM_HOST."""
    host = environ.get("DCGM_HOST", "").strip()
    if not host:
        return {}
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return {"dcgm.url": SettingTexts("DCGM_HOST", (f"http://{host}:{dcgm_port(environ)}{dcgm_path(environ)}",))}


def dcgm_port(environ: Mapping[str, str]) -> int:
    """DCGM_PORT, or 9400 if it is no port. For a Service called dcgm, Kubernetes sets it to tcp://10.0.0.1:9400."""
    port = environ.get("DCGM_PORT", "").strip()
    return int(port) if _is_port(port) else DEFAULT_DCGM_PORT


def dcgm_path(environ: Mapping[str, str]) -> str:
    """DCGM_METRICS_ENDPOINT, or /metrics."""
    return "/" + (environ.get("DCGM_METRICS_ENDPOINT", "").strip() or "/metrics").removeprefix("/")


def doubts(environ: Mapping[str, str], settings: Sequence[Setting]) -> Iterator[Trouble]:
    """Doubts about variables that look like this program's: no setting has the name, or its prefix is misspelt."""
    names = {CONFIG_FILE, *(setting.env for setting in settings)}
    for name in sorted(environ):
        rest = name.removeprefix(ENVIRONMENT_PREFIX)
        like_ours = _LIKE_OURS.fullmatch(name)
        meant = f"{ENVIRONMENT_PREFIX}{like_ours[1].upper()}" if like_ours else ""
        if name not in names and (meant in names or (rest != name and not _SERVICE_LINK.fullmatch(rest))):
            from exporter.config.suggestions import asked, closest  # noqa: PLC0415 - only a wrong name is worth it

            ours = [name.removeprefix(ENVIRONMENT_PREFIX) for name in names]
            near = [meant] if meant in names else [ENVIRONMENT_PREFIX + name for name in closest(rest, ours)]
            yield Trouble("", f"{name} is no setting, and is ignored", asked(near) or "serve --help-all names them all")


def doubts_of_port(environ: Mapping[str, str], *, is_used: bool) -> Iterator[Trouble]:
    """The doubt about a DCGM_PORT without effect. `is_used`: a valid port would have an effect."""
    port = environ.get("DCGM_PORT", "").strip()
    if not port:
        return
    if is_used and not _is_port(port):
        yield Trouble(
            "",
            f"DCGM_PORT {without_secrets(port)!r} is no port, and is ignored: {DEFAULT_DCGM_PORT} is used",
            f"give it a number from 1 to {MAX_PORT}; a Service called dcgm sets it to tcp://… in every pod of its"
            " namespace (enableServiceLinks: false in the pod's spec keeps it out)",
        )
    # a tcp://… comes from Kubernetes' service links, and no user meant it
    elif not is_used and "://" not in port:
        remedy = "it goes with DCGM_HOST or --dcgm.selector; otherwise name the whole URL with --dcgm.url"
        yield Trouble("", f"DCGM_PORT {port!r} is ignored: nothing says whose port it is", remedy)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text[: len(str(MAX_PORT)) + 1]) <= MAX_PORT
