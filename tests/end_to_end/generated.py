"""Pages out of the join for pages out of the generator, to be shown to real components."""

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from exporter.exposition.join import Joiner
from exporter.model.devices import Owners
from exporter.model.pages import JoinedPage
from exporter.ownership.labels import LabelPolicy
from tests.support.strategies import Row, attribution_of, owner_states, pages, policies, rows


def joined_pages(count: int) -> list[JoinedPage]:
    """The same pages every time: what is odd about them is known by the seed."""
    found: list[JoinedPage] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(bodies=st.lists(pages, min_size=1, max_size=3), policy=policies, owners=owner_states())
    def collect(bodies: list[bytes], policy: LabelPolicy, owners: Owners) -> None:
        joiner = Joiner(
            read_subject=policy.read_subject,
            is_owner_label=policy.is_owner_label,
            wanted=lambda _: True,
            nobodys=policy.nobodys,
        )
        found.append(joiner.join(bodies, attribution_of(owners, policy)))

    collect()
    return [page for page in found if page.sample_count]


def valid_pages(count: int) -> list[bytes]:
    """Pages as they should be: typed families, every series once, odd label values and values included."""
    found: list[bytes] = []

    @settings(max_examples=count, derandomize=True, database=None, phases=[Phase.generate], deadline=None)
    @given(
        sampled=st.lists(rows(attributed=False), min_size=1, max_size=12), kind=st.sampled_from(("gauge", "untyped"))
    )
    def collect(sampled: list[Row], kind: str) -> None:
        lines: dict[object, str] = {}
        for row in sampled:
            if not row.name.startswith("pod_gpu_exporter_"):
                lines.setdefault((row.name, "HELP"), f"# HELP {row.name} Of {row.name}.\n# TYPE {row.name} {kind}")
                lines.setdefault((row.name, frozenset(label for label in row.labels if label[1])), row.text)
        found.append("".join(f"{line}\n" for line in lines.values()).encode())

    collect()
    return found
