"""GPUs and their pods without this exporter: by the pages of the cluster's dcgm-exporters, and by what pods ask for.

Each dcgm-exporter is asked through the API server's proxy, all of them at once. What has answered by a deadline is
shown, and the rest is named. A page that is late is shown at the next look.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote

from exporter.kubectl import device_holders
from exporter.kubectl.api_proxy import ApiAnswer, ApiProxy, TooSlow
from exporter.kubectl.binary import KubectlRefusal
from exporter.kubectl.dcgm_pods import RIGHTS, DcgmPod, find, nodes_with_gpus
from exporter.kubectl.gpu_requests import NodePods, offered_by, pods_of, with_holders
from exporter.kubectl.page_rows import PageRows
from exporter.lenient import mappings
from exporter.model.device_row import DeviceRow
from exporter.model.name_order import as_people_count
from exporter.top.shown_devices import shown_of
from exporter.top.state import View
from exporter.top.transport import Answered, Gone
from exporter.wording import and_listed, counted, one_line

# One that hangs takes a place for twice the wait. So many hang at once where a NetworkPolicy is in the way, and the
# others must have their turn.
_AT_ONCE = 256
_MOST_PODS = 10_000
# dcgm-exporter reads its GPUs every 30 s unless it is told otherwise, so asking more often shows little
_FRESH_SECONDS = 10.0
_PODS_ARE_FRESH_SECONDS = 30.0
_STALE_SECONDS = 30.0
_QUIET_SECONDS = 1.0
_LATER_SECONDS = 1.0  # a look after the first shows what it has after this time: the next one shows the rest
_MOST_NAMED = 4
_SPEAKS_TLS = b"HTTP request to an HTTPS server"  # Go's server, as dcgm-exporter is
_SPEAKS_OTHER = ("EOF", "malformed HTTP response", "server gave HTTP response to HTTPS client")
_POLICY = "is the pod ready, and does a NetworkPolicy let the API server reach it?"
_LOOK_AT_LOG = "look at the log of dcgm-exporter"
_ASKS_FOR_MORE = "install the exporter on the nodes, which reads the page from nearby"
_NOT_ASKED = "dcgm-exporter has not been asked yet, since too many others do not answer"
_NONE_THERE = "no dcgm-exporter runs there"
_NODE_SELECTOR = "does the nodeSelector of its DaemonSet leave the node out?"
_PROCESSES = "dcgm-exporter's page has no processes -> install the exporter on the nodes"


class PageAnswer(NamedTuple):
    """What a node's page and pods say: rows, or the reason why there are none, and what to do about it."""

    rows: Sequence[DeviceRow] = ()
    why_none: str = ""
    remedy: str = ""


class _Fetched(NamedTuple):
    """What came from a node: its page, or `failure` with the reason why not. `pods`: None if nobody may list them."""

    page: bytes = b""
    read_at_seconds: float = 0.0
    failure: PageAnswer = PageAnswer()
    pods: NodePods | None = None
    offered: Mapping[str, int] | None = None


@dataclass(slots=True, kw_only=True)
class _AskedNode:
    """A node with its dcgm-exporters, of which one is enough, and its last answer."""

    name: str
    pods: Sequence[DcgmPod]
    pages: PageRows
    last: PageAnswer | None = None
    last_at: float = float("-inf")
    asking: Future[_Fetched] | None = None
    schemes: dict[DcgmPod, str] = field(default_factory=dict)


@dataclass(slots=True)
class NothingInstalled:
    """A TopReader of the dcgm-exporters of a cluster.

    Args:
        api: the running proxy.
        namespace: the namespace of the dcgm-exporters; "" for all.
        wait_seconds: how long the first look waits for pages. It waits on for as long as one comes every second.
        of_pods_in: the namespace whose pods hold the devices that are shown, or may hold them; "" for all devices.
        rows: the rows of the last look.
    """

    api: ApiProxy
    namespace: str
    wait_seconds: float
    of_pods_in: str = ""
    rows: Sequence[DeviceRow] = ()
    _nodes: dict[str, _AskedNode] = field(default_factory=dict)
    _gpu_nodes: Future[Collection[str]] | None = None
    _listed_at: float = float("-inf")
    _may_list_pods: bool = True
    _may_get_nodes: bool = True
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_AT_ONCE))

    def ask(self, view: View) -> Answered:
        """See TopReader. Raises Gone if no dcgm-exporter's page can be read."""
        self._list()
        nodes = [*self._nodes.values()]
        is_first = all(node.last is None for node in nodes)
        self._begin(nodes)
        self._take(nodes, self.wait_seconds if is_first else min(self.wait_seconds, _LATER_SECONDS))
        answers = {node.name: self._answer(node) for node in nodes}
        rows = [row for answer in answers.values() for row in answer.rows]
        if not rows:
            raise Gone(_why_nothing(answers))
        self.rows = device_holders.of_namespace(rows, self.of_pods_in) if self.of_pods_in else rows
        answers |= dict.fromkeys(self._left_out(), PageAnswer(why_none=_NONE_THERE, remedy=_NODE_SELECTOR))
        about = [
            {"name": name, "missing": not answer.rows, "message": answer.why_none, "remedy": answer.remedy}
            for name, answer in answers.items()
        ]
        shown = shown_of("cluster", f"{len(nodes)} dcgm-exporters", {"nodes": about}, self.rows, "")
        trouble = _PROCESSES if view == "processes" else ""

        return Answered(replace(shown, processes_trouble=trouble, of_pods_in=self.of_pods_in), self.rows)

    def _list(self) -> None:
        """Look again for dcgm-exporters, if it is time. What is remembered of a pod that is still there stays."""
        now = time.monotonic()
        if now - self._listed_at < _PODS_ARE_FRESH_SECONDS:
            return
        by_node = find(self.api, self.namespace)
        self._listed_at = now
        nodes: dict[str, _AskedNode] = {}
        for name in sorted(by_node, key=as_people_count):
            before = self._nodes.get(name)
            is_same = before is not None and before.pods == by_node[name]
            new = _AskedNode(name=name, pods=by_node[name], pages=PageRows(name))
            nodes[name] = before if before and is_same else new
        self._nodes = nodes
        self._gpu_nodes = self._threads.submit(nodes_with_gpus, self.api)

    def _left_out(self) -> Sequence[str]:
        """The nodes with GPUs on which no dcgm-exporter runs, as far as the API server has said it."""
        if self._gpu_nodes is None:
            return ()

        try:
            names = self._gpu_nodes.result(_QUIET_SECONDS)
        except (Gone, TimeoutError):
            return ()  # the next look may know them

        return sorted(set(names).difference(self._nodes), key=as_people_count)

    def _begin(self, nodes: Sequence[_AskedNode]) -> None:
        """Ask every node whose last answer is not fresh, and that is not being asked already."""
        now = time.monotonic()
        for node in nodes:
            if node.asking is None and now - node.last_at >= _FRESH_SECONDS:
                node.asking = self._threads.submit(self._fetch, node)

    def _take(self, nodes: Sequence[_AskedNode], seconds: float) -> None:
        """Read answers as they come: for so long, and then for as long as they keep coming."""
        until = time.monotonic() + seconds
        of_future = {node.asking: node for node in nodes if node.asking is not None}
        while of_future:
            left = max(until - time.monotonic(), _QUIET_SECONDS)
            done, _ = wait(of_future, left, FIRST_COMPLETED)
            if not done:
                return
            for future in done:
                node = of_future.pop(future)
                node.asking = None
                node.last = _read(node, future.result())
                node.last_at = time.monotonic()

    def _answer(self, node: _AskedNode) -> PageAnswer:
        """The last answer of a node, unless it is older than a node that answers would let it be."""
        if node.last is not None and time.monotonic() - node.last_at < _STALE_SECONDS:
            return node.last

        if node.asking is not None and not node.asking.running():
            return PageAnswer(why_none=_NOT_ASKED, remedy="--wait gives it longer")

        return PageAnswer(
            why_none=f"dcgm-exporter gives no answer within {self.wait_seconds:g} s",
            remedy=f"--wait gives it longer; {_POLICY}",
        )

    def _fetch(self, node: _AskedNode) -> _Fetched:
        """Ask a node's dcgm-exporters until one answers, and then for the node's pods. In a thread of its own."""
        answers = []
        for pod in node.pods:
            answers.append(self._fetch_page(node, pod))
            if answers[-1].page:
                pods = self._pods_on(node.name)
                offered = self._offered_by(node.name) if pods and pods.requests else None

                return answers[-1]._replace(pods=pods, offered=offered)

        return answers[0]

    def _fetch_page(self, node: _AskedNode, pod: DcgmPod) -> _Fetched:
        """The page of a dcgm-exporter, or the reason why there is none."""
        if pod.silence:
            return _no_page(pod.silence, f"kubectl -n {pod.namespace} describe pod {pod.name}")
        try:
            answer = self._answer_of(node, pod)
        except TooSlow as error:
            return _no_page(f"dcgm-exporter gives {error}", _POLICY)
        except Gone as error:
            return _no_page(str(error), "")
        if answer.status != HTTPStatus.OK:
            return _Fetched(failure=_why_refused(answer))
        if not answer.body.strip():
            return _no_page("dcgm-exporter's page is empty", _LOOK_AT_LOG)

        return _Fetched(page=answer.body, read_at_seconds=time.time())

    def _answer_of(self, node: _AskedNode, pod: DcgmPod) -> ApiAnswer:
        """The answer of a dcgm-exporter, by HTTP or HTTPS. Raises Gone."""
        seconds = 2 * self.wait_seconds
        scheme = node.schemes.get(pod)
        if scheme is not None:
            return self.api.get(pod.path(scheme), seconds)
        likelier, other = pod.schemes
        answer = self.api.get(pod.path(likelier), seconds)
        if answer.status == HTTPStatus.OK:
            node.schemes[pod] = likelier
        if not _may_be_of_other_scheme(answer):
            return answer
        second = self.api.get(pod.path(other), seconds)
        if second.status != HTTPStatus.OK and second.refusal is not None:
            return answer  # nobody speaks the other scheme either
        node.schemes[pod] = other

        return second

    def _pods_on(self, node: str) -> NodePods | None:
        if not self._may_list_pods:
            return None
        try:
            listed = self.api.item("/api/v1/pods", 2 * self.wait_seconds, fieldSelector=f"spec.nodeName={node}")
        except Gone as error:
            self._may_list_pods = not _is_forbidden(error)

            return None

        return pods_of(mappings(listed, "items", _MOST_PODS))

    def _offered_by(self, node: str) -> Mapping[str, int] | None:
        """The devices that a node has to give. They show whether it shares its GPUs."""
        if not self._may_get_nodes:
            return None
        try:
            return offered_by(self.api.item(f"/api/v1/nodes/{quote(node, safe='')}", 2 * self.wait_seconds))
        except Gone as error:
            self._may_get_nodes = not _is_forbidden(error)

            return None


def _read(node: _AskedNode, fetched: _Fetched) -> PageAnswer:
    """The rows of what came from a node."""
    if fetched.failure.why_none:
        return fetched.failure
    try:
        rows = node.pages.of(fetched.page, fetched.read_at_seconds)
    except ValueError as error:
        return PageAnswer(why_none=str(error), remedy=_LOOK_AT_LOG)

    return PageAnswer(with_holders(rows, fetched.pods, fetched.offered))


def _no_page(why: str, remedy: str) -> _Fetched:
    return _Fetched(failure=PageAnswer(why_none=why, remedy=remedy))


def _is_forbidden(error: Gone) -> bool:
    return isinstance(error, KubectlRefusal) and error.is_forbidden


def notes(rows: Iterable[DeviceRow]) -> Iterator[str]:
    """What nobody knows without the exporter on the nodes, in sentences."""
    yield "No page says since when a pod holds a GPU or leaves it idle, and how healthy the GPU is."
    if any(row.gpu_shared for row in rows):
        yield "Pods share GPUs: no page says what each of them uses."
    yield "The exporter on the nodes knows it (docs/install.md)."


def _why_nothing(answers: Mapping[str, PageAnswer]) -> str:
    """The reason why no GPU can be shown: that of most nodes, with their names."""
    reasons = Counter((answer.why_none, answer.remedy) for answer in answers.values())
    (why, remedy), count = reasons.most_common(1)[0]
    nodes = [name for name, answer in answers.items() if (answer.why_none, answer.remedy) == (why, remedy)]
    about = f"on {and_listed(nodes, _MOST_NAMED)}, {why}"
    if len(answers) > count:
        about += f" (and on {counted(len(answers) - count, 'node')} for other reasons)"

    return f"no GPU can be shown: {about} -> {remedy}" if remedy else f"no GPU can be shown: {about}"


def _may_be_of_other_scheme(answer: ApiAnswer) -> bool:
    """Whether a server that speaks HTTPS alone, or HTTP alone, answers so to the other."""
    if answer.refusal is None:
        return answer.status == HTTPStatus.BAD_REQUEST and _SPEAKS_TLS in answer.body

    return any(words in answer.refusal.message for words in _SPEAKS_OTHER)


def _why_refused(answer: ApiAnswer) -> PageAnswer:
    """The reason why there is an error in place of a page."""
    refusal = answer.refusal
    if refusal is not None:
        return _refused(refusal)
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        why = "dcgm-exporter asks for a password or a token, which the API server's proxy does not pass on"

        return PageAnswer(why_none=f"{why} (HTTP status {answer.status})", remedy=_ASKS_FOR_MORE)
    words = one_line(answer.body[:400].decode("utf-8", "replace"), 100)

    return PageAnswer(why_none=f"dcgm-exporter answers with HTTP status {answer.status}: {words}", remedy=_POLICY)


def _refused(refusal: KubectlRefusal) -> PageAnswer:
    """The API server's own refusal: the user may not, or it reaches nobody."""
    if refusal.reason == "NotFound":
        return PageAnswer(why_none="dcgm-exporter's pod has gone", remedy="look again in some seconds")
    if refusal.is_forbidden:
        return PageAnswer(why_none=refusal.without_remedy, remedy=RIGHTS)

    return PageAnswer(why_none=f"dcgm-exporter does not answer: {refusal.message}", remedy=_POLICY)
