"""A scaler's conversation as KEDA has it, over a real channel, with the cluster role behind its real port."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import grpc
import grpc.aio
import pytest

from exporter._gen import externalscaler_pb2 as messages
from exporter.cluster.cluster import Cluster, ClusterHandover
from exporter.cluster.keda.scaler import MOST_STREAMS
from exporter.cluster.role import CLUSTER, KedaPort
from exporter.cluster.scaled_objects import ScaledObjects
from exporter.config.cluster_settings import ClusterConfig, load_cluster
from exporter.errors import ConfigError, PortTaken
from exporter.log import LOG
from exporter.model.cluster_view import ClusterView, HeldDevice
from exporter.service import Service
from exporter.sources.source import SourceCache
from tests.cluster.test_role import Seen
from tests.support.clusters import GONE, held, node_of, view_of
from tests.support.keda import METHOD, Keda
from tests.support.waiting import PATIENCE_SECONDS, until

UTIL = "gpu_utilization"
TRIGGER = {"metric": UTIL, "target": "70", "workload": "deployment:trainer"}
Code = grpc.StatusCode


@dataclass
class Talk:
    """A cluster role with KEDA's port, and the view that it has."""

    source: Seen
    service: Service[ClusterConfig]
    channel: grpc.aio.Channel
    port: int

    def keda(self, **metadata: str) -> Keda:
        return Keda(self.channel, {**TRIGGER, **metadata})

    def sees(self, *percents: float, gone: bool = False) -> None:
        self.source.view = view(*percents, gone=gone)


def view(*percents: float, gone: bool = False) -> ClusterView:
    """A pod of ml/trainer for each value, all on one node, and another node beside it."""
    devices: list[HeldDevice] = [
        held(f"trainer-{number}", f"GPU-{number}", values={UTIL: percent}) for number, percent in enumerate(percents)
    ]
    return view_of(node_of("n1", *devices), node_of("n2", held("z", workload="other"), trouble=GONE if gone else None))


def config_of(**more: str) -> ClusterConfig:
    flags = {"cluster.node": ["http://a:1"], "web.listen-address": ["127.0.0.1:0"]}
    flags["keda.listen-address"] = ["127.0.0.1:0"]
    return load_cluster(
        flags | {name.replace("__", ".").replace("_", "-"): [text] for name, text in more.items()}, {}, None
    )


@asynccontextmanager
async def talking(
    seen: ClusterView | None = None,
    *,
    config: ClusterConfig | None = None,
    scaled_objects: ScaledObjects | None = None,
    credentials: grpc.ChannelCredentials | None = None,
    every_seconds: float = 0.05,
) -> AsyncIterator[Talk]:
    source = Seen(seen or view())
    config = config or config_of()

    def make(_: ClusterConfig, __: object) -> Cluster:
        return Cluster(
            source=source,
            others=(),
            scaled_objects=scaled_objects,
            cache=SourceCache(lambda *_: None),
            pulse_seconds=every_seconds,
            patience_seconds=2.0,
            handover=ClusterHandover(),
        )

    service = Service(config, replace(CLUSTER, make=make), lambda: config)
    try:
        await service.listen()
        assert isinstance(service._beside, KedaPort)
        address = service._beside.address
        assert address is not None
        to = f"127.0.0.1:{address.port}"
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", "localhost"))
        async with (
            grpc.aio.secure_channel(to, credentials, options) if credentials else grpc.aio.insecure_channel(to, options)
        ) as channel:
            yield Talk(source, service, channel, address.port)
    finally:
        await service.close()


async def refusal(keda: Keda, method: str = "IsActive") -> tuple[grpc.StatusCode, str]:
    answers = {"IsActive": messages.IsActiveResponse, "GetMetricSpec": messages.GetMetricSpecResponse}
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await keda.call(method, keda.ref, answers[method])
    return error.value.code(), error.value.details() or ""


# issue 11, "Must show" 2
async def test_a_conversation_in_the_order_in_which_keda_calls() -> None:
    async with talking() as talk:
        # the workload waits for another trigger's first pod: an error is not active for KEDA, and a typo scales nothing
        keda = talk.keda(activationThreshold="5")
        spec = await keda.metric_spec()
        assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == (UTIL, 70, 70.0)
        code, text = await refusal(keda)
        assert (code, "no pod of a workload ml/trainer has been seen" in text) == (Code.NOT_FOUND, True)

        # from 0 to 1 once a pod works; up to the threshold it does not count
        talk.sees(5.0)
        assert await keda.polls() == 0
        talk.sees(5.5)
        assert (await keda.polls(), await keda.hpa()) == (1, 1)

        # values, out and in: 95 + 85 + 65.5 percent are four pods at 70 and three at 90
        talk.sees(95.0, 85.0, 65.5)
        assert await keda.value(UTIL) == 245.5
        assert (await keda.polls(), await keda.hpa()) == (1, 4)

        # a node that is missing may hold any number of pods: an error, and no scale-in of any kind
        talk.sees(10.0, gone=True)
        for _ in range(3):
            assert (await keda.polls(), await keda.hpa()) == (4, 4)
        assert len(keda.errors) == 12
        for error in keda.errors:
            assert error.code() is Code.UNAVAILABLE
            assert "n2" in (error.details() or "")
        # the HPA is made and mended meanwhile: this trigger stays in it
        assert await keda.metric_spec() == spec

        # recovery: what is known is the truth again
        talk.sees(60.0, 20.0, 30.0, 10.0)
        assert (await keda.polls(), await keda.hpa()) == (4, 2)
        talk.sees(0.0, 0.0)
        assert (await keda.hpa(), await keda.polls()) == (1, 0)


async def test_a_stream_says_what_has_changed_and_ends_with_an_error() -> None:
    async with talking(view(0.0)) as talk:
        stream = talk.keda().stream()
        assert (await stream.read()).result is False
        talk.sees(30.0)
        assert (await stream.read()).result is True
        talk.sees(31.0)
        await asyncio.sleep(0.12)
        talk.sees(0.0)
        assert (await stream.read()).result is False, "31 is no change"
        talk.sees(30.0)
        assert (await stream.read()).result is True
        talk.sees(gone=True)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stream.read()
        assert error.value.code() is Code.UNAVAILABLE
        # KEDA reconnects
        talk.sees(30.0)
        again = talk.keda().stream()
        assert (await again.read()).result is True
        telemetry = talk.service.telemetry
        assert ("keda_streams", MOST_STREAMS, 1) in telemetry.bounds
        again.cancel()
        await until(lambda: ("keda_streams", MOST_STREAMS, 0) in telemetry.bounds)


async def test_streams_end_without_an_error_when_the_program_ends() -> None:
    async with talking(view(30.0), every_seconds=3600) as talk:
        stream = talk.keda().stream()
        assert (await stream.read()).result is True
        await talk.service.close()
        assert await stream.read() is grpc.aio.EOF


async def test_there_is_a_most_of_streams_which_says_what_to_do_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.cluster.keda.scaler.MOST_STREAMS", 3)
    async with talking(view(30.0)) as talk:
        streams = [talk.keda().stream() for _ in range(3)]
        for stream in streams:
            assert (await stream.read()).result is True
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await talk.keda().stream().read()
        assert (error.value.code(), "external" in (error.value.details() or "")) == (Code.RESOURCE_EXHAUSTED, True)
        assert await talk.keda().is_active()


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        ({"metric": ""}, "metric"),
        ({"metric": "gpu_utilisation"}, "gpu_utilization"),
        ({"metric": "pod"}, "metric"),
        ({"metric": "x" * 5000}, "metric"),
        ({"target": ""}, "target"),
        ({"target": "0"}, "target"),
        ({"target": "0.0009"}, "target"),
        ({"target": "-1"}, "target"),
        ({"target": "nan"}, "target"),
        ({"target": "inf"}, "target"),
        ({"target": "1e3"}, "target"),
        ({"target": "1_0"}, "target"),
        ({"target": "٣"}, "target"),
        ({"target": "9" * 20}, "target"),
        ({"target": "70%"}, "target"),
        ({"activationThreshold": "-5"}, "activationThreshold"),
        ({"activationThreshold": "many"}, "activationThreshold"),
        ({"activationTreshold": "5"}, "did you mean activationThreshold?"),
        ({"activationthreshold": "5"}, "did you mean activationThreshold?"),
        ({"Target": "5"}, "did you mean target?"),
        ({"workload": ""}, "workload"),
        ({"workload": "../secrets"}, "workload"),
        ({"workload": "a:b:c"}, "workload"),
        ({"workload": "trainer\n"}, ""),
        ({"workload": "t" * 20_000}, ""),
        ({"workload": "\x00"}, "workload"),
    ],
)
async def test_metadata_that_cannot_be_meant_are_refused_with_the_key(metadata: Mapping[str, str], key: str) -> None:
    async with talking(view(30.0)) as talk:
        if metadata == {"workload": "trainer\n"}:
            assert await talk.keda(**metadata).is_active(), "YAML leaves line ends at texts"
            return
        for method in ("GetMetricSpec", "IsActive"):
            code, text = await refusal(talk.keda(**metadata), method)
            assert (code, key in text, len(text) < 1300) == (Code.INVALID_ARGUMENT, True, True), text


@pytest.mark.parametrize("missing", ["metric", "target"])
async def test_a_key_that_is_missing_is_named(missing: str) -> None:
    async with talking(view(30.0)) as talk:
        keda = Keda(talk.channel, {key: value for key, value in TRIGGER.items() if key != missing})
        code, text = await refusal(keda, "GetMetricSpec")
        assert (code, text.startswith(f"{missing} is missing")) == (Code.INVALID_ARGUMENT, True)


@pytest.mark.parametrize(
    ("name", "namespace"), [("", "ml"), ("a/../b", "ml"), ("a", ""), ("a", "../x"), ("a", "n" * 64), ("A" * 300, "ml")]
)
async def test_names_that_no_object_can_have_are_refused(name: str, namespace: str) -> None:
    async with talking(view(30.0)) as talk:
        keda = Keda(talk.channel, TRIGGER, name=name, namespace=namespace)
        assert (await refusal(keda))[0] is Code.INVALID_ARGUMENT


async def test_hostile_calls_cost_only_themselves() -> None:
    async with talking(view(30.0)) as talk:
        large = talk.keda(**{f"key-{number}": "v" * 1000 for number in range(100)})
        assert (await refusal(large))[0] is Code.RESOURCE_EXHAUSTED
        many = talk.keda(**{f"key-{number}": "" for number in range(2000)})
        assert await refusal(many) == (
            Code.INVALID_ARGUMENT,
            "there are 2005 keys in the trigger's metadata; leave out what is not needed",
        )
        assert await talk.keda(colour="blue").is_active(), "a later KEDA may have keys of its own"
        raw: Any = talk.channel.unary_unary(METHOD + "IsActive")
        for body in (b"\xff" * 100, b"\x0a\x02\xff\xfe", b""):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await raw(body, timeout=5)
            assert error.value.code() is Code.INVALID_ARGUMENT
        later: Any = talk.channel.unary_unary(METHOD + "StreamMetricSpec")
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await later(b"", timeout=5)
        assert error.value.code() is Code.UNIMPLEMENTED, "KEDA goes on without it"
        keda = talk.keda()
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await keda.value("s0-gpu_utilization")
        assert error.value.code() is Code.INVALID_ARGUMENT
        reader, writer = await asyncio.open_connection("127.0.0.1", talk.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
        writer.close()
        assert await keda.is_active()


async def test_many_calls_at_once() -> None:
    async with talking(view(30.0, 40.0)) as talk:
        kedas = [talk.keda(workload=name) for name in ("deployment:trainer", "trainer")]
        found = await asyncio.gather(*(keda.value(UTIL) for keda in kedas for _ in range(100)))
        assert found == [70.0] * 200


async def test_a_fault_of_ours_is_an_error_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with talking(view(30.0)) as talk:
        talk.source.view = None  # type: ignore[assignment]
        code, text = await refusal(talk.keda())
        assert (code, text) == (Code.INTERNAL, "a fault of the exporter: its log has the trace")
        stream = talk.keda().stream()
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stream.read()
        assert error.value.code() is Code.INTERNAL
    assert "a call of KEDA failed by a fault of the exporter" in caplog.text


async def test_values_for_keda_before_2_17_which_reads_whole_numbers() -> None:
    async with talking(view(0.25)) as talk:
        keda = talk.keda(target="0.5")
        spec = await keda.metric_spec()
        assert (spec.targetSize, spec.targetSizeFloat) == (0, 0.5)
        asked = messages.GetMetricsRequest(scaledObjectRef=keda.ref, metricName=UTIL)
        (found,) = (await keda.call("GetMetrics", asked, messages.GetMetricsResponse)).metricValues
        assert (found.metricValue, found.metricValueFloat) == (1, 0.25)
        talk.sees(1e30)
        (found,) = (await keda.call("GetMetrics", asked, messages.GetMetricsResponse)).metricValues
        assert (found.metricValue, found.metricValueFloat) == (2**63 - 1, 1e30)


async def test_statuses_say_whether_waiting_helps(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", LOG.name)
    async with talking(view_of(node_of("n1", held(shared=True)))) as talk:
        code, text = await refusal(talk.keda())
        assert (code, "shares the device" in text) == (Code.FAILED_PRECONDITION, True)
        code, text = await refusal(Keda(talk.channel, {"metric": UTIL, "target": "70"}))
        assert (code, "--kubernetes.url" in text) == (Code.FAILED_PRECONDITION, True)
        assert caplog.text.count("KEDA is answered with an error") == 2, "once for each trigger"
        for _ in range(3):
            await refusal(talk.keda())
        assert caplog.text.count("KEDA is answered with an error") == 2
        talk.sees(30.0)
        assert await talk.keda().is_active()
        assert caplog.text.count("KEDA is answered again") == 1
        talk.sees()
        for _ in range(3):
            assert not await talk.keda().is_active()
        assert caplog.text.count("its value is 0") == 1


async def test_a_port_that_is_taken() -> None:
    async with talking() as talk:
        config = config_of(keda__listen_address=f"127.0.0.1:{talk.port}")
        with pytest.raises(PortTaken, match=r"--keda\.listen-address: cannot listen on 127\.0\.0\.1:"):
            async with talking(config=config):
                pass


async def test_a_reload_keeps_the_port_and_asks_the_new_role() -> None:
    async with talking(view(30.0)) as talk:
        assert await talk.keda().value(UTIL) == 30.0
        talk.source = Seen(view(50.0))
        service, before = talk.service, talk.service._role
        service._kind = replace(
            service._kind,
            make=lambda *_: Cluster(
                source=talk.source,
                others=(),
                cache=SourceCache(lambda *_: None),
                pulse_seconds=1,
                patience_seconds=1,
                handover=ClusterHandover(),
            ),
        )
        await service.reload()
        assert service._role is not before
        assert await talk.keda().value(UTIL) == 50.0
        other = config_of(keda__listen_address="127.0.0.1:9")
        service._reread = lambda: other
        role = service._role
        await service.reload()
        assert service._role is role, "refused"
        assert service._beside is not None
        with pytest.raises(ConfigError, match=r"--keda\.listen-address cannot change"):
            service._beside.check_stays(other, service._web.config)


async def test_a_reload_does_not_open_a_port_that_was_not_there() -> None:
    flags = {"cluster.node": ["http://127.0.0.1:1"], "web.listen-address": ["127.0.0.1:0"]}
    service = Service(load_cluster(flags, {}, None), CLUSTER, config_of)
    try:
        await service.listen()
        role = service._role
        await service.reload()
        assert service._role is role, "refused"
    finally:
        await service.close()


async def test_an_error_has_room_in_a_header_whatever_nodes_are_called() -> None:
    names = [f"\N{SNOWMAN}\r\nx: y{number}" * 50 for number in range(9)]
    gone = view_of(node_of("n1"), *(node_of(name, trouble=GONE) for name in names))
    async with talking(gone) as talk:
        code, text = await refusal(talk.keda())
        assert (code, len(text) < 1300, text.isprintable()) == (Code.UNAVAILABLE, True, True)
        assert "9 of 10 nodes did not answer" in text


def test_grpc_is_imported_only_where_keda_may_ask() -> None:
    code = """
import sys
import exporter.cluster.command, exporter.cluster.role
assert not {"grpc", "google.protobuf", "exporter._gen"} & set(sys.modules), "without --keda.listen-address"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
