"""The worst pages: the time must be linear in the size. Each page is joined cold, small and four times as large."""

from collections.abc import Callable

from benchmarks.table import Aim, Row, median_seconds
from exporter.exposition.join import Joiner
from exporter.model.devices import Owners
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution

SMALL, TIMES = 250_000, 4
# exactly linear would be 4; caches and memory add a little; quadratic would be 16
AIM = Aim(f"about {TIMES} times", 1.5 * TIMES)
PAGES: dict[str, Callable[[int], bytes]] = {
    "one line of backslashes": lambda size: b'a{b="' + b"\\\\" * (size // 2) + b'"} 1\n',
    "one line of backslashes, not closed": lambda size: b'a{b="' + b"\\" * (size | 1) + b'"} 1\n',
    "100,000 labels on a line": lambda size: b"a{" + b",".join(b'l%d="v"' % n for n in range(size // 10)) + b"} 1\n",
    "one label again and again": lambda size: b"a{" + b",".join([b'l="v"'] * (size // 6)) + b"} 1\n",
    "quotes inside quotes": lambda size: b'a{b="' + b'\\"' * (size // 2) + b'"} 1\n',
    "quotes, not closed": lambda size: b"a{b=" + b'"' * size + b" 1\n",
    "braces": lambda size: b"a" + b"{" * size + b" 1\n",
    "blanks and commas": lambda size: b"a{" + b" ," * (size // 2) + b"} 1\n",
    "a HELP of backslashes": lambda size: b"# HELP a " + b"\\" * size + b"\n",
    "exemplars": lambda size: b"a 1 " + b"# " * (size // 2) + b"\n",
    "digits": lambda size: b"a " + b"1" * size + b"\n",
    "lines that are none": lambda size: b"a{\n" * (size // 3),
    "a family's TYPE on every line": lambda size: b"".join(b"# TYPE a%d gauge\n" % n for n in range(size // 18)),
}


def run(_: float) -> list[Row]:
    """The rows on each page. There are seven rounds for any effort, since the pages are large."""
    policy = LabelPolicy()
    attribution = Attribution(Owners(), policy)

    def seconds(page: bytes) -> float:
        def join() -> None:
            joiner = Joiner(
                read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True
            )
            joiner.join([page], attribution)

        join()
        return median_seconds(join, rounds=7)

    rows = []
    for name, make in PAGES.items():
        small, large = seconds(make(SMALL)), seconds(make(SMALL * TIMES))
        figure = f"{large / small:.1f} times ({small * 1e3:.1f} ms, {large * 1e3:.1f} ms)"
        rows.append(
            Row(f"worst page, {SMALL * TIMES / 1e6:g} / {SMALL / 1e6:g} MB: {name}", figure, AIM, large / small)
        )
    return rows
