"""The cluster role as a process, in front of many simulated exporters of which some stall: what `make bench` measures.

There it is 500 of them; here fewer.
"""

import json
from typing import Any

from benchmarks.cluster import PATHS, ask, role
from benchmarks.exporters import name_of
from tests.support.waiting import wait_until

COUNT, STALLED = 80, 9
TIMEOUT_SECONDS = 1.0


# issue 11, "Must show" 4
def test_stalled_nodes_delay_nobody_and_are_named() -> None:
    stalled = [name_of(number) for number in range(COUNT - STALLED, COUNT)]
    with role(COUNT, STALLED) as (cluster, _):
        times = sorted(ask(cluster, path)[0] for path in PATHS * 10)
        # who waits for a stalled node waits for --cluster.timeout, a second here
        assert times[len(times) // 2] < TIMEOUT_SECONDS

        def answered(path: str) -> Any:
            return json.loads(ask(cluster, path)[1])

        # on a busy machine another node may be late for once
        wait_until(lambda: answered("/autoscale/ml/trainer/gpu_utilization")["missing_nodes"] == stalled)
        wait_until(lambda: len({row["node_name"] for row in answered("/container/metrics")}) == COUNT - STALLED)
        ready = ask(cluster, "/-/ready")[1].decode()
        assert all(name in ready for name in stalled)
        assert cluster.resident_mib() < 150
