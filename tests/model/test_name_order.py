"""Names are sorted as people count."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.model.name_order import as_people_count

IN_ORDER = (
    "",
    "1",
    "02",
    "2",
    "10",
    "9" * 5000,
    "gpu-node",
    "gpu-node-1",
    "gpu-node-2",
    "gpu-node-10",
    "gpu-node-10-a",
)


# issue 22, line 15
def test_numbers_count_by_their_size() -> None:
    backwards = IN_ORDER[::-1]
    assert sorted(backwards, key=as_people_count) == [*IN_ORDER]
    assert sorted(["n-1.b2", "n-1.b10", "n-1.a3", "n-01.a3"], key=as_people_count) == [
        *("n-01.a3", "n-1.a3", "n-1.b2", "n-1.b10")
    ]


# issue 22, line 15
@given(st.lists(st.text(st.sampled_from("0129a-٣²"), max_size=6), unique=True))
def test_names_of_any_kind_have_one_order(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(names, key=as_people_count) == sorted(backwards, key=as_people_count)
