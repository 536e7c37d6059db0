"""Troubles of a bundle come back: the exporter in front of its replay says the same again."""

from collections.abc import Sequence

import pytest

from exporter.bundle.recording import PeerAnswer, RecordedMoment, Recording
from exporter.config.named_files import read_node_files
from exporter.errors import Trouble
from exporter.node.build import make_node
from exporter.node.first_look import look_at_all
from exporter.outputs.output import LOOK_AT_NODE
from tests.support.bundles import replay_of

URL = "http://10.0.0.1:9400/metrics"
PAGE = "dcgm:10.0.0.1:9400"
SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
FOLDER = "/var/lib/kubelet/pod-resources"
LIST = "v1.PodResourcesLister/List"
PODS = "/api/v1/pods"
QUICK = {"kubelet.timeout": ("300ms",), "dcgm.timeout": ("300ms",)}


async def health_of(source: str, answers: Sequence[PeerAnswer]) -> Trouble | None:
    """What an exporter says of a source in front of a bundle that has these answers."""
    settings = {"dcgm.url": (URL,), "nvml.mode": ("off",), "node-name": ("node-1",), "labels.pod-uid": ("on",)}
    settings |= {"pods.source": ("api",)}
    recording = Recording(
        made_by="1", settings=settings, moments=(RecordedMoment(at_seconds=0.0, answers=tuple(answers)),)
    )
    async with replay_of(recording) as node:
        config = node.config(QUICK)
        exporter = make_node(config, read_node_files(config))
        try:
            trouble = (await look_at_all(exporter, LOOK_AT_NODE)).health[source].trouble
        finally:
            await exporter.close()
        if trouble is None:
            return None
        message = trouble.message
        for place, recorded in node.recorded_texts.items():
            message = message.replace(place, recorded)
        return Trouble(trouble.reason, message)


KUBELET = [
    Trouble("refused", f"nobody listens on {SOCKET}"),
    Trouble("missing", f"{FOLDER} is there, and no socket in it"),
    Trouble("missing", f"{FOLDER} does not exist here: the socket's directory is not mounted"),
    Trouble("missing", f"{SOCKET} is a folder and no socket"),
    Trouble("missing", f"{SOCKET} is no socket"),
    Trouble("permission", f"no right to open {SOCKET}"),
    Trouble("deadline", f"the kubelet did not answer on {SOCKET} within 0.3 s"),
    Trouble("rate_limited", "the kubelet's rate limit, shared by everyone on the node, is used up"),
    Trouble("oversize", "the kubelet's answer is too large: Received message larger than max (70000000 vs. 67108864)"),
    Trouble("garbage", f"{SOCKET} does not answer like a kubelet: PERMISSION_DENIED not you"),
    Trouble("unreachable", f"the connection to {SOCKET} broke: recvmsg:Connection reset by peer"),
]


@pytest.mark.parametrize("trouble", KUBELET, ids=[trouble.message[:60] for trouble in KUBELET])
async def test_a_trouble_of_the_kubelet_comes_again(trouble: Trouble) -> None:
    answer = PeerAnswer(peer="kubelet", name="kubelet", question=LIST, trouble=trouble)
    assert await health_of("kubelet", (answer,)) == trouble


PAGES = [
    ("refused", "nobody listens there", "nobody listens there"),
    ("deadline", "no whole answer within 0.3 s", "no whole answer within 0.3 s"),
    ("http_status", "HTTP status 503 for /metrics", "HTTP status 503 for /metrics"),
    ("http_status", "HTTP status 404: there is no /metrics", "HTTP status 404: there is no /metrics"),
    ("permission", "it refuses /metrics with HTTP status 401", "it refuses /metrics with HTTP status 401"),
    ("truncated", "the answer was cut off", "cut off"),
    ("unreachable", "the name dcgm has no address", ""),
    ("encoding", "", ""),
    ("oversize", "it answers more than --dcgm.max-bytes 6291456", "--dcgm.max-bytes 6291456"),
    ("no_samples", "the answer has not one valid sample: it is empty", "it is empty"),
]


@pytest.mark.parametrize(("reason", "message", "again"), PAGES, ids=[f"{reason} {text}" for reason, text, _ in PAGES])
async def test_a_trouble_of_a_page_comes_again(reason: str, message: str, again: str) -> None:
    answer = PeerAnswer(peer="page", name=PAGE, question=URL, trouble=Trouble(reason, message))
    recording = await page_health(answer)
    assert recording.reason == reason
    assert again in recording.message


async def page_health(answer: PeerAnswer) -> Trouble:
    """The trouble of the only page."""
    recording = Recording(
        made_by="1",
        settings={"dcgm.url": (URL,), "nvml.mode": ("off",)},
        moments=(RecordedMoment(at_seconds=0.0, answers=(answer,)),),
    )
    async with replay_of(recording) as node:
        config = node.config(QUICK)
        exporter = make_node(config, read_node_files(config))
        try:
            healths = (await look_at_all(exporter, LOOK_AT_NODE)).health
        finally:
            await exporter.close()
    (trouble,) = [health.trouble for name, health in healths.items() if name.startswith("dcgm:127")]
    assert trouble is not None
    return trouble


API = [
    ("permission", f"the Kubernetes API refuses {PODS} with 403: pods is forbidden: no access"),
    ("http_status", f"the Kubernetes API answers {PODS} with HTTP status 500"),
    ("rate_limited", f"the Kubernetes API answers {PODS} with HTTP status 429"),
]


@pytest.mark.parametrize(("reason", "message"), API)
async def test_a_trouble_of_the_kubernetes_api_comes_again(reason: str, message: str) -> None:
    answer = PeerAnswer(peer="kubernetes", name="pods", question=PODS, trouble=Trouble(reason, message))
    trouble = await health_of("pods", (answer,))
    assert trouble is not None
    assert trouble.reason == reason
    assert trouble.message.startswith(message)


async def test_an_api_that_is_away_refuses() -> None:
    answer = PeerAnswer(peer="kubernetes", name="pods", question=PODS, trouble=Trouble("refused", "nobody is there"))
    trouble = await health_of("pods", (answer,))
    assert trouble is not None
    assert trouble.reason == "refused"
