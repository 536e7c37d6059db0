"""The cluster role as a process, in front of many simulated exporters of which some stall: what `make bench` measures.

There it is 500 of them; here fewer, and the limits are those for 500, since others use the machine as well.
"""

import json

from benchmarks.cluster import PATHS, ask, role
from benchmarks.exporters import name_of

COUNT, STALLED = 80, 9


# issue 11, "Must show" 4
def test_stalled_nodes_delay_nobody_and_are_named() -> None:
    stalled = [name_of(number) for number in range(COUNT - STALLED, COUNT)]
    with role(COUNT, STALLED) as (cluster, start):
        assert start < 2 + 8  # a busy machine may take its time to start Python
        times = sorted(ask(cluster, path)[0] for path in PATHS * 10)
        assert times[len(times) // 2] < 0.5
        assert json.loads(ask(cluster, "/autoscale/ml/trainer/gpu_utilization")[1])["missing_nodes"] == stalled
        ready = ask(cluster, "/-/ready")[1].decode()
        assert all(name in ready for name in stalled)
        assert len({row["node_name"] for row in json.loads(ask(cluster, "/container/metrics")[1])}) == COUNT - STALLED
        assert cluster.resident_mib() < 150
