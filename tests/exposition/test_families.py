"""Writing the text format: what is kept of it, and how much."""

import tracemalloc

from exporter.exposition.families import render_family


# issue 7, line 24
def test_texts_that_upstreams_made_long_are_not_kept() -> None:
    """A model's name of 64 KB is a valid label value, and there are 1,024 places for texts."""

    def rendered(number: int) -> int:
        model = f"{number} " + "x" * 64_000
        return len(render_family("pod_gpu_info", "gauge", "Help.", ("modelName",), [((model,), 1.0)]))

    rendered(0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert all(rendered(number) > 64_000 for number in range(200))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000_000  # 200 of them were 25 MB
