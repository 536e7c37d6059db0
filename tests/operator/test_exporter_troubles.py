"""What keeps the operator from what a spec wants → the conditions."""

from collections.abc import Sequence

import pytest

from exporter.errors import Malformed, SourceError, TimedOut, Trouble, Unavailable
from exporter.operator.api.writer import Refused
from exporter.operator.exporters.exporter_status import in_the_way, no_counters
from exporter.operator.objects.object_fields import as_trouble
from tests.operator.made import daemon_set, pod
from tests.operator.test_exporter_status import dcgm_down, message, of, says

REFUSALS: Sequence[tuple[SourceError, str]] = [
    (Unavailable("permission", "may not patch daemonsets", remedy="apply deploy/operator"), "Forbidden"),
    (Unavailable("unauthorized", "the token is refused", remedy="mount one"), "Forbidden"),
    (Refused("/x", 422, "spec.x: Required value", "Invalid"), "Refused"),
    (Unavailable("http_status", "HTTP status 503", remedy="wait"), "ApiUnavailable"),
    (Unavailable("unreachable", "no route", remedy="wait"), "ApiUnavailable"),
    (TimedOut("no answer within 5 s", remedy="wait"), "ApiUnavailable"),
    (Malformed("garbage", "no JSON", remedy="look"), "ApiUnavailable"),
    (Malformed("oversize", "2001 HPAs", remedy="delete some"), "TooMany"),  # issue 15, line 15
]


@pytest.mark.parametrize(("error", "reason"), REFUSALS)
def test_writes_that_are_refused(error: SourceError, reason: str) -> None:
    status = of(obstacles=[as_trouble(error)])
    for kind in ("Ready", "Progressing", "Degraded"):
        assert says(status, kind)[1] == reason
    assert message(status, "Ready") == f"{error.trouble.message} -> {error.trouble.remedy}"


def test_what_stands_in_the_way_is_named() -> None:
    service = {"kind": "Service", "metadata": {"name": "gpu"}}
    status = of(obstacles=[in_the_way(service), no_counters("mine", "list.csv", is_there=True)])
    assert says(status, "Degraded") == ("True", "NotOurs")
    assert "there is a Service gpu that is not this GPUExporter's; it is left alone" in message(status, "Degraded")
    assert "the ConfigMap mine of spec.collectors.configMap has no key list.csv" in message(status, "Degraded")
    assert "mine of spec.collectors.configMap is not there" in no_counters("mine", "x", is_there=False).message


def test_an_obstacle_hides_no_trouble() -> None:
    status = of(
        daemon_set=daemon_set(1),
        pods=[pod("a")],
        troubles=[dcgm_down()],
        obstacles=[Trouble(reason="Forbidden", message="may not patch services")],
    )
    assert message(status, "Degraded").startswith("may not patch services; besides: 1 of 1 node is in trouble;")
