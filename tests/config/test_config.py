"""Flags, environment and file: precedence, values, and errors that name what to do."""

import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import pytest

from exporter.config.load import load
from exporter.config.node_settings import SETTINGS, Config
from exporter.config.page_settings import DEFAULT_DCGM_URL, ProbeSettings, source_names
from exporter.config.parsers import Address, duration
from exporter.errors import ConfigError


def config(
    flags: Mapping[str, Sequence[str]] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Mapping[str, Any] | None = None,
) -> Config:
    return load(flags or {}, environ or {}, file, "host")


def test_defaults() -> None:
    found = config()
    assert found.web.listen_addresses == (Address(host="", port=9400),)
    assert found.kubelet.socket == "/var/lib/kubelet/pod-resources/kubelet.sock"
    assert found.kubelet.max_age_seconds == 1.0
    assert found.kubelet.timeout_seconds == 5.0
    assert found.kubelet.max_stale_seconds is None
    assert found.devices.resources == (
        "nvidia.com/*",
        "tencent.com/vcuda-*",
        "volcano.sh/vgpu-number",
        "aliyun.com/gpu-mem",
    )
    assert found.dcgm.urls == ("http://127.0.0.1:9401/metrics",)
    assert found.dcgm.timeout_seconds == 5.0
    assert found.dcgm.max_bytes == 6 * 1024 * 1024
    assert found.node.name == "host"
    assert found.labels.names == ("pod", "namespace", "container")
    assert (found.labels.incoming_wins, found.labels.idle, found.sharing.mode) == (False, True, "copy")
    assert (found.log.level, found.log.format) == ("info", "logfmt")
    assert found.probe == ProbeSettings(is_on=False, interval_seconds=5.0, max_programs=64, any_kernel=False)


def test_precedence() -> None:
    file = {"kubelet.socket": "/from/file", "node-name": "file", "sharing": "device", "log": {"level": "debug"}}
    environ = {
        "POD_GPU_EXPORTER_KUBELET_SOCKET": "/from/env",
        "DCGM_POD_RESOURCES_KUBELET_SOCKET": "/from/other/env",
        "NODE_NAME": "env",
    }
    found = config({"kubelet.socket": ["/from/flag"]}, environ, file)
    assert (found.kubelet.socket, found.node.name, found.sharing.mode) == ("/from/flag", "env", "device")
    assert found.log.level == "debug"
    assert config({}, environ, file).kubelet.socket == "/from/env"
    assert config({}, {"DCGM_POD_RESOURCES_KUBELET_SOCKET": "/other"}, file).kubelet.socket == "/other"
    assert config({}, {}, file).kubelet.socket == "/from/file"


@pytest.mark.parametrize(
    ("environ", "field", "value"),
    [
        ({"HTTP_LISTEN_PORT": "6061"}, "web.listen_addresses", (Address(host="", port=6061),)),
        ({"POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS": ":1,[::1]:2"}, "web.listen_addresses",
         (Address(host="", port=1), Address(host="::1", port=2))),
        ({"NVIDIA_RESOURCE_NAMES": "nvidia.com/gpu, nvidia.com/mig-*"}, "devices.resources",
         ("nvidia.com/gpu", "nvidia.com/mig-*")),
        ({"LOG_LEVEL": "WARN"}, "log.level", "warn"),
        ({"LOG_LEVEL": "Warning"}, "log.level", "warn"),
        ({"DCGM_HOST": "h"}, "dcgm.urls", ("http://h:9400/metrics",)),
        ({"DCGM_HOST": "h", "DCGM_PORT": "9500", "DCGM_METRICS_ENDPOINT": "x/y"}, "dcgm.urls", ("http://h:9500/x/y",)),
        ({"DCGM_HOST": "::1", "DCGM_PORT": "9500"}, "dcgm.urls", ("http://[::1]:9500/metrics",)),
        # what Kubernetes' service links make of a service called dcgm
        ({"DCGM_HOST": "h", "DCGM_PORT": "tcp://10.0.0.1:9400"}, "dcgm.urls", ("http://h:9400/metrics",)),
        ({"DCGM_PORT": "tcp://10.0.0.1:9400"}, "dcgm.urls", ("http://127.0.0.1:9401/metrics",)),
        ({"POD_GPU_EXPORTER_DCGM_URL": "http://a:1,http://b:2/m"}, "dcgm.urls", ("http://a:1/metrics", "http://b:2/m")),
        ({"POD_GPU_EXPORTER_SERVICE_HOST": "10.0.0.1", "POD_GPU_EXPORTER_NODE_NAME": ""}, "node.name", "host"),
    ],
)  # fmt: skip
def test_environment(environ: dict[str, str], field: str, value: object) -> None:
    assert attrgetter(field)(config(environ=environ)) == value


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ({"web.listen-address": ["127.0.0.1:0"]}, "web.listen_addresses", (Address(host="127.0.0.1", port=0),)),
        ({"kubelet.socket": ["unix:///run/k.sock"]}, "kubelet.socket", "/run/k.sock"),
        ({"kubelet.max-age": ["500ms"]}, "kubelet.max_age_seconds", 0.5),
        ({"kubelet.max-stale": ["2h"]}, "kubelet.max_stale_seconds", 7200.0),
        ({"dcgm.url": ["http://a:1/m", "https://b/m"]}, "dcgm.urls", ("http://a:1/m", "https://b/m")),
        ({"dcgm.url": ["HTTPS://b/M", "Http://a"]}, "dcgm.urls", ("https://b/M", "http://a/metrics")),
        ({"labels.pod-labels-limit": ["5"]}, "labels.pod_labels_limit", 5),
        ({"labels.names": ["legacy"]}, "labels.names", ("pod_name", "pod_namespace", "container_name")),
        ({"labels.names": ["legacy"]}, "labels.idle", False),
        ({"labels.names": ["legacy"], "labels.idle": ["empty"]}, "labels.idle", True),
        ({"labels.names": ["container=c,pod=p,namespace=n"]}, "labels.names", ("p", "n", "c")),
        ({"labels.conflict": ["keep"]}, "labels.incoming_wins", True),
        ({"families.allow": ["A.*", "B"]}, "families.allow", ("A.*", "B")),
        ({"probe.mode": ["on"]}, "probe.is_on", True),
        ({"probe.interval": ["2s"]}, "probe.interval_seconds", 2.0),
        ({"probe.max-programs": ["8"]}, "probe.max_programs", 8),
        ({"probe.any-kernel": ["on"]}, "probe.any_kernel", True),
    ],
)
def test_flags(flags: dict[str, list[str]], field: str, value: object) -> None:
    assert attrgetter(field)(config(flags)) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("web.listen-address", "9400"),
        ("web.listen-address", ":99999"),
        ("web.listen-address", "::1:9400"),
        ("web.listen-address", "http://x:1"),
        ("kubelet.socket", "relative.sock"),
        ("kubelet.socket", "/" + "x" * 200),
        ("kubelet.timeout", "5"),
        ("kubelet.timeout", "0s"),
        ("kubelet.max-age", "-1s"),
        ("resources", " "),
        ("dcgm.url", "localhost:9400/metrics"),
        ("dcgm.url", "ftp://x/"),
        ("dcgm.url", "http://x:port/"),
        ("dcgm.url", "http://x:0/"),
        ("dcgm.url", "http://x..y/"),
        ("dcgm.max-bytes", "32M"),
        ("dcgm.max-bytes", "0"),
        ("node-name", ""),
        ("labels.names", "both"),
        ("labels.names", "pod=a,namespace=b"),
        ("labels.names", "pod=a,namespace=a,container=c"),
        ("labels.names", "pod=9,namespace=b,container=c"),
        ("labels.names", "pod=UUID,namespace=b,container=c"),
        ("labels.names", "pod=__name__,namespace=b,container=c"),
        ("labels.names", "pod=namespace,namespace=pod,container=c"),
        ("labels.conflict", "maybe"),
        ("labels.idle", "on"),
        ("labels.owners", "maybe"),
        ("sharing", "halves"),
        ("families.allow", "("),
        ("log.level", "loud"),
        ("probe.mode", "auto"),
        ("probe.interval", "0s"),
        ("probe.any-kernel", "yes"),
        ("probe.max-programs", "0"),
    ],
)
def test_a_bad_value_names_the_key_the_value_and_what_is_allowed(name: str, value: str) -> None:
    setting = next(setting for setting in SETTINGS if setting.name == name)
    with pytest.raises(ConfigError) as raised:
        config({name: [value]})
    assert str(raised.value).startswith(f"--{name}: {value!r} is not allowed")
    assert setting.kind.allowed in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ({"kubelet.sockt": "/x"}, "'kubelet.sockt' is not a key"),
        ({"kubelet": {"sockt": "/x"}}, "'kubelet.sockt' is not a key"),
        ({"kubelet": "/x"}, "'kubelet' is not a key"),
        ({"kubelet.socket": ["/x", "/y"]}, "kubelet.socket: ['/x', '/y'] is not allowed"),
        ({"kubelet.socket": None}, "kubelet.socket: it has no value"),
        ({"sharing": True}, "sharing: 'on' is not allowed"),
    ],
)
def test_a_bad_file(file: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match="config file") as raised:
        config(file=file)
    assert message in str(raised.value)


def test_lists_in_the_file() -> None:
    found = config(file={"dcgm": {"url": ["http://a:1/m", "http://b:2/m"], "max-bytes": 5}})
    assert (found.dcgm.urls, found.dcgm.max_bytes) == (("http://a:1/m", "http://b:2/m"), 5)


@pytest.mark.parametrize(
    ("listen", "upstream"),
    [
        (":9400", "http://127.0.0.1:9400/metrics"),
        (":9400", "http://localhost:9400/metrics"),
        (":80", "http://[::1]/metrics"),
        ("127.0.0.1:9400", "http://localhost:9400/metrics"),
        ("10.1.2.3:9400", "http://10.1.2.3:9400/metrics"),
    ],
)
def test_the_exporter_is_not_its_own_upstream(listen: str, upstream: str) -> None:
    with pytest.raises(ConfigError, match="one of the two must move"):
        config({"web.listen-address": [listen], "dcgm.url": [upstream]})


def test_another_address_is_no_contradiction() -> None:
    config({"web.listen-address": [":9400"], "dcgm.url": ["http://10.0.0.9:9400/metrics", "http://localhost:9401/m"]})
    config({"web.listen-address": ["10.1.2.3:9400"], "dcgm.url": ["http://127.0.0.1:9400/metrics"]})


def test_the_same_twice_is_a_contradiction() -> None:
    with pytest.raises(ConfigError, match="http://a:1/m is named twice"):
        config({"dcgm.url": ["http://user:secret@a:1/m", "http://user:secret@a:1/m"]})


def test_no_secret_in_an_error() -> None:
    with pytest.raises(ConfigError) as raised:
        config({"dcgm.url": ["ftp://user:secret@a:1/m"]})
    assert "secret" not in str(raised.value)


# issue 7, line 33
@pytest.mark.parametrize(
    "urls",
    [
        ["ftp://a:1/m?token=secret"],
        ["http://a:1/m?token=secret", "http://a:1/m?token=secret"],
        ["http://127.0.0.1:9400/m?token=secret"],
        ["http://user:secret@a:port/m"],
    ],
    ids=str,
)
def test_no_query_in_an_error(urls: list[Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        config({"dcgm.url": urls})
    assert "secret" not in str(raised.value)


# issue 7, line 33
def test_no_query_in_an_error_about_the_file() -> None:
    with pytest.raises(ConfigError) as raised:
        config(file={"dcgm.url": [["http://a:1/m?token=secret"]]})
    assert "secret" not in str(raised.value)


# issue 7, line 33
def test_no_query_in_a_name() -> None:
    urls = ["http://h:1/a?token=1", "http://h:1/b?token=2", "http://h:1/a?token=3", "http://x:2/a?token=4"]
    assert source_names(urls) == ("dcgm:h:1/a#1", "dcgm:h:1/b", "dcgm:h:1/a#2", "dcgm:x:2")


# issue 7, line 14
@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"POD_GPU_EXPORTER_SHARNG": "split"}, ["POD_GPU_EXPORTER_SHARNG is no setting", "POD_GPU_EXPORTER_SHARING?"]),
        ({"POD_GPU_EXPORTER_QQQ": "x"}, ["POD_GPU_EXPORTER_QQQ", "--help"]),
        ({"DCGM_HOST": "a", "DCGM_PORT": "94000"}, ["'94000'", "9400 is used", "1 to 65535"]),
        ({"DCGM_HOST": "a", "DCGM_PORT": "0"}, ["'0'", "9400 is used"]),
        ({"DCGM_HOST": "a", "DCGM_PORT": "tcp://10.0.0.1:9400"}, ["tcp://10.0.0.1:9400", "enableServiceLinks"]),
        ({"DCGM_LABELS": "app=dcgm", "DCGM_PORT": "x"}, ["'x'", "9400 is used"]),
        ({"DCGM_PORT": "9401"}, ["'9401' is ignored", "DCGM_HOST or --dcgm.selector"]),
    ],
)
def test_what_was_probably_meant_otherwise_is_a_doubt(environ: dict[str, str], says: list[str]) -> None:
    (doubt,) = config(environ=environ).doubts
    for part in says:
        assert part in f"{doubt.message}: {doubt.remedy}"


# issue 7, line 14
@pytest.mark.parametrize(
    "environ",
    [
        {f"POD_GPU_EXPORTER_{end}": "x" for end in (
            "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_METRICS", "PORT", "PORT_9400_TCP", "PORT_9400_TCP_ADDR",
            "PORT_9400_TCP_PORT", "PORT_9400_TCP_PROTO", "METRICS_SERVICE_HOST", "METRICS_PORT_53_UDP_ADDR",
        )},
        {"POD_GPU_EXPORTER_CONFIG_FILE": "/x", "POD_GPU_EXPORTER_SHARING": "split", "PATH": "/bin"},
        {"DCGM_HOST": "a", "DCGM_PORT": "9401"},
        {"DCGM_PORT": "tcp://10.0.0.1:9400"},  # a service link that nobody asked for
        {"DCGM_LABELS": "app=dcgm", "DCGM_PORT": "9401"},
    ],
)  # fmt: skip
def test_service_links_and_what_has_an_effect_are_no_doubt(environ: dict[str, str]) -> None:
    assert config(environ=environ).doubts == ()


# issue 7, line 13
def test_settings_are_shown_with_where_they_come_from_and_without_secrets() -> None:
    found = config(
        {"dcgm.url": ["http://me:hunter2@a:1/m?token=hunter2", "http://b:2/m"], "sharing": ["split"]},
        {"NODE_NAME": "ti"},
        {"labels": {"names": "legacy"}},
    ).shown()
    assert "hunter2" not in str(found)
    assert found["dcgm.url"] == {"value": "http://a:1/m?…,http://b:2/m", "from": "--dcgm.url"}
    assert found["node-name"] == {"value": "ti", "from": "NODE_NAME"}
    assert found["labels.names"] == {"value": "legacy", "from": "config file: labels.names"}
    assert found["labels.idle"] == {"value": "omit", "from": "--labels.names"}
    assert found["kubelet.timeout"] == {"value": "5s", "from": "default"}
    assert config().shown()["dcgm.url"] == {"value": "http://127.0.0.1:9401/metrics", "from": "default"}
    assert "dcgm.url" not in config({"dcgm.file": ["/x"]}).shown()


# issue 7, line 14
def test_a_key_is_given_once_whichever_way_it_is_written() -> None:
    for file in (
        {"kubelet.socket": "/x", "kubelet": {"socket": "/y"}},
        {"kubelet": {"socket": "/y"}, "kubelet.socket": "/x"},
    ):
        with pytest.raises(ConfigError, match=r"config file: kubelet\.socket is given twice"):
            config(file=file)


def test_source_names() -> None:
    urls = ["http://u:p@h:1/a", "http://h:1/b", "https://x/m", "http://[::1]:2/m"]
    assert source_names(urls) == ("dcgm:h:1/a", "dcgm:h:1/b", "dcgm:x:443", "dcgm:[::1]:2")


def test_durations() -> None:
    assert [duration(text) for text in ("500ms", "5s", "1m", "1.5h")] == [0.5, 5.0, 60.0, 5400.0]


def test_an_inventory_that_is_off_is_not_named_and_one_of_a_file_is() -> None:
    with pytest.raises(ConfigError, match=r"--inventory: off contradicts --inventory\.file"):
        config({"inventory": ["off"], "inventory.file": ["/x"]})
    with pytest.raises(ConfigError, match=r"--inventory: file needs --inventory\.file"):
        config({"inventory": ["file"]})
    assert config({"inventory": ["file"], "inventory.file": ["/x"]}).devices.inventory_file == "/x"


# issue 28, churn-free series
@pytest.mark.parametrize("other", [{"sharing": ["split"]}, {"labels.conflict": ["keep"]}])
def test_samples_without_owners_contradict_what_makes_rows_of_owners(other: dict[str, list[str]]) -> None:
    name = f"--{next(iter(other))}"
    with pytest.raises(ConfigError, match=rf"^--labels\.owners: off [^\n]*{name} [^\n]*(?:choose|leave) [^\n]+$"):
        config({"labels.owners": ["off"], **other})
    assert config(other).labels.owners
    assert not config({"labels.owners": ["off"], "sharing": ["device"]}).labels.owners


def test_accounting_is_on_and_its_numbers_are_checked() -> None:
    found = config().accounting
    assert (found.is_on, found.interval_seconds, found.idle_below, found.keep_seconds) == (True, 10.0, 0.05, 300.0)
    given = config(file={"accounting": {"mode": False, "interval": "500ms", "idle-below": 1, "keep": "0s"}}).accounting
    assert (given.is_on, given.interval_seconds, given.idle_below, given.keep_seconds) == (False, 0.5, 1.0, 0.0)
    for name, text in (("idle-below", "1.01"), ("idle-below", "-0"), ("idle-below", "5%"), ("interval", "0s")):
        with pytest.raises(ConfigError, match=rf"--accounting\.{name}: '{text}' is not allowed; it takes a"):
            config({f"accounting.{name}": [text]})


def test_a_state_that_nobody_keeps_is_a_contradiction() -> None:
    with pytest.raises(
        ConfigError, match=r"^--accounting\.state: nothing is kept with --accounting\.mode off; [^\n]+$"
    ):
        config({"accounting.mode": ["off"], "accounting.state": ["/var/lib/state"]})
    assert config({"accounting.state": ["/var/lib/state"]}).accounting.state_file == "/var/lib/state"


def test_without_dcgm_no_page_is_named_and_nvml_makes_it() -> None:
    assert config({"dcgm.mode": ["off"]}).dcgm.urls == ()
    assert config({"dcgm.mode": ["auto"]}).dcgm.urls == (DEFAULT_DCGM_URL,)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ("dcgm.url", "http://a:1/m"),
        ("dcgm.file", "/run/prometheus/dcgm.prom"),
        ("dcgm.selector", "auto"),
        ("nvml.mode", "off"),
    ],
)
def test_without_dcgm_whoever_else_would_make_the_page_is_a_contradiction(other: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^--dcgm\.mode: off [^\n]*--{re.escape(other)}[^\n]*leave one[^\n]*$"):
        config({"dcgm.mode": ["off"], other: [text]})


def test_a_page_that_the_environment_names_contradicts_too() -> None:
    with pytest.raises(ConfigError, match=r"--dcgm\.mode: off .*DCGM_HOST"):
        config({"dcgm.mode": ["off"]}, {"DCGM_HOST": "node"})
