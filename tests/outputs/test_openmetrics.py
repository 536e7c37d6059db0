"""/metrics as OpenMetrics 1.0: the samples of the text, each counter with its begin, and nothing a parser refuses."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as open_parser
from prometheus_client.parser import text_string_to_metric_families as text_families

from exporter.accounts.amounts import AMOUNTS
from exporter.cluster.outputs import own_metrics as cluster_metrics
from exporter.cluster.outputs.look import ClusterLook
from exporter.errors import Trouble
from exporter.model.accounts import Account, Accounts
from exporter.model.cuda import CudaCounts, CudaUse, CudaUses
from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import Health
from exporter.operator.outputs import METRICS, OperatorLook, OperatorMetrics, OperatorView
from exporter.outputs import own_metrics
from exporter.outputs.output import NOTHING_SEEN, Answer, Look, Question
from exporter.web.endpoints import prefers_openmetrics
from tests.cluster.test_many_rows import VIEW
from tests.support.exporter import Start

open_families: Callable[[str], Iterable[Metric]] = open_parser.text_string_to_metric_families
# what pods cannot be called, but dcgm-exporter's page can say
TEXTS = st.text(max_size=6) | st.sampled_from(('a"b', "a\\", "line\nend", "# EOF", 'x"} 1', "\0", "\ud800"))
DEVICES = st.builds(DeviceKey, uuid=TEXTS, instance=st.sampled_from(("", "1")))
OWNERS = st.none() | st.builds(Owner, namespace=TEXTS, pod=TEXTS, container=TEXTS)
NUMBERS = st.integers(0, 2**70)
ALL = [family for amount in AMOUNTS for family in amount.families]
# values of the labels that divide an amount, by their number
VALUES = {1: ("48", "79", "other"), 2: ("replay/5", "crc/", "pcie_replay/")}
ACCOUNTS = st.builds(
    Account,
    owner=OWNERS,
    device=DEVICES,
    labels=st.lists(
        st.tuples(st.sampled_from(("pod_uid", "label_team", "queue")), TEXTS), unique_by=lambda one: one[0]
    ).map(tuple),
    allocated_ratio=st.none() | st.floats(0, 1),
    amounts=st.dictionaries(st.sampled_from([family.amount for family in ALL if not family.labels]), NUMBERS),
    by_label=st.fixed_dictionaries(
        {},
        optional={
            family.amount: st.dictionaries(st.sampled_from(VALUES[len(family.labels)]), NUMBERS, max_size=2)
            for family in ALL
            if family.labels
        },
    ),
    began_ns=st.none() | st.integers(0, 4_000_000_000_000_000_000),
)
USES = st.dictionaries(
    st.tuples(OWNERS, DEVICES), NUMBERS.map(lambda number: CudaUse(counts=CudaCounts(launches=number))), max_size=2
)
OWNER = Owner(namespace="ns", pod="p", container="c")
DOWN = Health(up=False, trouble=Trouble("refused", "nobody listens", 'start "it"'))
HEALTH = st.dictionaries(st.sampled_from(("kubelet", 'dcgm:http://a"b')), st.just(DOWN))


def texts(look: Look) -> tuple[str, str]:
    """The page as text and as OpenMetrics, each with its right type, and without what every process says of itself."""
    answers: list[Answer] = []
    for is_open in (False, True):
        made = own_metrics.OUTPUT.make(replace(look, question=Question(is_open=is_open)))
        answers.append(made if isinstance(made, Answer) else at_once(made))
    plain, opened = answers
    assert plain.content_type.startswith("text/plain; version=0.0.4")
    assert opened.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert opened.size == sum(map(len, opened.pieces))
    return b"".join(plain.pieces[:-1]).decode(), b"".join(opened.pieces).decode()


def by_series(families: Iterable[Metric]) -> Mapping[tuple[str, frozenset[tuple[str, str]]], tuple[str, float]]:
    """Each sample's type and value, by its series."""
    return {
        (sample.name, frozenset(sample.labels.items())): (family.type, sample.value)
        for family in families
        for sample in family.samples
    }


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(ACCOUNTS, max_size=5, unique_by=lambda row: (row.owner, row.device)),
    uses=USES,
    health=HEALTH,
    began_ns=st.none() | st.just(1_700_000_000_000_000_000),
)
def test_any_page_is_valid_and_says_what_the_text_says_and_begins(
    rows: list[Account], uses: Mapping[object, CudaUse], health: dict[str, Health], began_ns: int | None
) -> None:
    accounts = Accounts(rows=tuple(rows), began_ns=began_ns)
    snapshot = replace(
        NOTHING_SEEN,
        node="n",
        accounts=accounts,
        health=health,
        cuda=CudaUses(uses=uses),  # type: ignore[arg-type]
    )
    plain, opened = texts(Look(snapshot=snapshot))
    assert opened.endswith("\n# EOF\n")
    in_text, in_open = by_series(text_families(plain)), by_series(open_families(opened))
    begins = {series: value for series, (_, value) in in_open.items() if series[0].endswith("_created")}
    assert in_text.items() <= in_open.items()
    assert in_text.keys() == {
        series for series in in_open.keys() - begins.keys() if not series[0].startswith(("process_", "python_"))
    }
    without = {name.removesuffix("_created") for name, _ in begins}
    counters = {name for (name, _), (kind, _) in in_text.items() if kind == "counter"}
    for row in rows:
        for amount, value in row.amounts.items():
            (name,) = (family.name for family in ALL if family.amount == amount)
            assert name in counters
            assert value >= 0
            if row.began_ns is not None:
                assert name.removesuffix("_total") in without


def test_each_account_says_when_it_began_and_one_that_goes_on_does_not() -> None:
    began_ns = 1_700_000_000_123_999_999
    one = Account(OWNER, DeviceKey(uuid="GPU-1"), (), None, {"allocated_ns": 5_000_000_000}, {}, began_ns)
    other = one._replace(device=DeviceKey(uuid="GPU-2"), began_ns=None)
    _, opened = texts(Look(snapshot=replace(NOTHING_SEEN, node="n", accounts=Accounts(rows=(one, other)))))
    lines = [line for line in opened.splitlines() if "pod_gpu_allocated_seconds" in line]
    labels = 'namespace="ns",pod="p",container="c",UUID="GPU-{}",GPU_I_ID="",node="n"'
    assert lines[1:] == [
        "# TYPE pod_gpu_allocated_seconds counter",
        f"pod_gpu_allocated_seconds_total{{{labels.format(1)}}} 5",
        f"pod_gpu_allocated_seconds_created{{{labels.format(1)}}} 1700000000.123",
        f"pod_gpu_allocated_seconds_total{{{labels.format(2)}}} 5",
    ]


def test_all_counters_of_the_process_have_begun_with_it() -> None:
    look = Look(snapshot=NOTHING_SEEN)
    _, opened = texts(look)
    families = [family for family in open_families(opened) if family.type in ("counter", "histogram")]
    assert {"process_cpu_seconds", "python_gc_collections", "pod_gpu_exporter_refused_requests"} < {
        family.name for family in families
    }
    for family in families:
        begins = [sample for sample in family.samples if sample.name == f"{family.name}_created"]
        counts = {tuple(sample.labels.items()) for sample in family.samples if "le" not in sample.labels}
        assert {sample.value for sample in begins} == {float(look.telemetry.began)}, family.name
        assert {tuple(sample.labels.items()) for sample in begins} == counts


def test_the_cluster_role_and_the_operator_answer_in_it_too() -> None:
    question = Question(is_open=True)
    operator = OperatorLook(
        seen=OperatorView(is_leader=True, holder="me", queued=0, served=frozenset()),
        metrics=OperatorMetrics(),
        question=question,
    )
    cluster = ClusterLook(view=VIEW, health={"kubernetes": DOWN}, at_seconds=1005.0, question=question)
    for answer in (METRICS.make(operator), cluster_metrics.OUTPUT.make(cluster)):
        assert isinstance(answer, Answer)
        assert answer.content_type.startswith("application/openmetrics-text")
        text = b"".join(answer.pieces).decode()
        names = {name for name, _ in by_series(open_families(text))}
        assert {"pod_gpu_exporter_build_info", "pod_gpu_exporter_refused_requests_created"} < names
        assert "\n# kubernetes" not in text


def test_the_comments_that_say_what_is_wrong_stay_in_the_text_alone() -> None:
    plain, opened = texts(Look(snapshot=replace(NOTHING_SEEN, health={"kubelet": DOWN})))
    assert plain.startswith("# kubelet failed (refused): nobody listens")
    assert opened.startswith("# HELP ")


PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("header", "answer"),
    [
        (PROMETHEUS_2_42, True),
        (PROMETHEUS_3, True),
        ("application/vnd.google.protobuf;encoding=delimited;q=0.6," + PROMETHEUS_3, True),
        ("application/openmetrics-text", True),
        ('Application/OpenMetrics-Text; Version="1.0.0"; charset=utf-8, */*', True),
        ("application/openmetrics-text; version=0.0.1, text/plain;q=0.5", False),
        ("text/plain;version=0.0.4;q=1,application/openmetrics-text;q=0.5", False),
        ("application/openmetrics-text;q=0.5, */*", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x, text/plain;q=0.1", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        (",;=,;q", False),
        ("", False),
    ],
)
def test_who_prefers_openmetrics(header: str, answer: bool) -> None:
    assert prefers_openmetrics(header) is answer


async def test_metrics_answers_each_client_in_its_format(start: Start) -> None:
    exporter = await start()
    for header, begins in (
        (PROMETHEUS_3, "application/openmetrics-text; version=1.0.0"),
        ("*/*", "text/plain; version"),
    ):
        for path in ("/metrics", "/gpu/metrics"):
            async with exporter.session.get(exporter.base + path, headers={"Accept": header}) as answer:
                text = await answer.text()
            is_open = path == "/metrics" and header == PROMETHEUS_3
            assert answer.headers["Content-Type"].startswith(begins if path == "/metrics" else "text/plain; version")
            assert answer.headers["Vary"] == ("Accept, Accept-Encoding" if path == "/metrics" else "Accept-Encoding")
            assert text.endswith("# EOF\n") is is_open
            assert len(list((open_families if is_open else text_families)(text))) > 10
