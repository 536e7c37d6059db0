"""What the probe is held to: that the stub programs tell the truth, by figures worked out by hand."""

import pytest

from exporter.model.cuda import CudaCounts
from tests.cuda.programs import Program, Variant, built, without_times
from tests.cuda.real_runtime import by_ctypes

SCRIPT = (
    "device 1; launch 1 2 3 4 32 2 1 20000000; malloc 1 1000; malloc 2 2000; free 1; copy 1 4096; sync 1;"
    "malloc 3 2000000000000; launch 0 1 1 1 1 1 1 -719; graph 0 0; copyasync 2 77 0; launch 0 1 1 1 2000 1 1 0"
)
DID = CudaCounts(
    launches=3,
    threads=1536,
    graph_launches=1,
    allocations=2,
    failed_allocations=1,
    frees=1,
    memory_bytes=2000,
    peak_bytes=3000,
    freed_bytes=1000,
    copies=(0, 1, 1, 0, 0),
    copied_bytes=(0, 4096, 77, 0, 0),
    syncs=1,
)


@pytest.mark.parametrize("api", ["runtime", "driver"])
@pytest.mark.parametrize("flavour", ["off", "on"])
def test_a_script_does_what_it_says(api: str, flavour: str) -> None:
    made = built()
    with Program(f"api {api}; perthread {flavour}; {SCRIPT}", libraries=made.over_driver) as program:
        truth = program.done()
    refused = 9 if api == "runtime" else 1
    assert truth.pid == program.pid
    assert list(truth.counts) == [1]
    assert dict(truth.counts[1].errors) == {2: 1, 719: 1, refused: 1}
    assert without_times(truth.counts[1]) == DID._replace(errors=truth.counts[1].errors)
    assert 0.018e9 < truth.counts[1].sync_ns <= truth.counts[1].active_ns < 2e9


@pytest.mark.parametrize("variant", ["opens", "linked", "static"])
def test_a_program_comes_to_its_runtime_in_every_way(variant: Variant) -> None:
    with Program("repeat 7; launch 0 1 1 1 8 1 1 0; end; spin 5", variant=variant) as program:
        did = program.done().counts[0]
    assert (did.launches, did.threads) == (12, 61)


def test_streams_are_busy_side_by_side() -> None:
    # each kernel runs for 0.3 s, so that a thread which a busy machine makes late still waits for most of it
    busy = "launch {0} 1 1 1 1 1 1 300000000; barrier; record {0} {0}; query {0}; eventsync {0}"
    with Program(busy.format(1), busy.format(2), variant="linked") as program:
        did = program.done().counts[0]
    assert did.errors == {}
    assert 0.299e9 < did.active_ns < did.sync_ns, "both threads waited, and at the same time"


def test_a_child_tells_its_own_truth() -> None:
    with Program("launch 0 1 1 1 1 1 1 0; fork; launch 0 1 1 1 1 1 1 0; launch 0 1 1 1 1 1 1 0") as program:
        child, parent = program.done(), program.truth()
    assert child.pid != parent.pid == program.pid
    assert (child.counts[0].launches, parent.counts[0].launches) == (2, 1)


def test_a_program_of_python_counts_what_each_function_returns() -> None:
    with by_ctypes(built().runtime, launches=4) as program:
        assert program.codes() == {
            "cudaLaunchKernel": {0: 4},
            "cudaMalloc": {0: 3},
            "cudaMemcpy": {0: 2},
            "cudaDeviceSynchronize": {0: 1},
        }
