"""What `make branches` says of the branches that no test takes."""

from tests.support.branches import FILES, LINES, table


def measured(lines: list[int], branches: int) -> dict[str, object]:
    return {
        "summary": {"num_branches": branches, "missing_branches": len(lines)},
        "missing_branches": [[line, line + 1] for line in lines],
    }


def test_the_files_with_the_most_come_first_each_with_its_lines() -> None:
    files = {
        "exporter/whole.py": measured([], 10),
        "exporter/some.py": measured([7, 3], 4),
        "exporter/many.py": measured(list(range(1, LINES + 2)), 26),
    }
    assert table({"files": files}) == [
        "branch coverage: 62.5%, 15 of 40 branches not taken in this process",
        "  13 of  26  exporter/many.py: 1 2 3 4 5 6 7 8 9 10 11 12 …",
        "   2 of   4  exporter/some.py: 3 7",
    ]


def test_it_stays_short() -> None:
    files = {f"exporter/{number}.py": measured([1], 2) for number in range(FILES * 2)}
    assert len(table({"files": files})) == 1 + FILES
