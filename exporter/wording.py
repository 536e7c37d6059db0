"""Words for people: texts from elsewhere made fit to show, and lists cut after the first few. Pure.

Four places have rules of their own: a terminal has cells and perhaps only ASCII (top/columns.py, report/formatting.py),
HTML shows a character's number (outputs/page/document.py), a header and a status of gRPC are ASCII
(cluster/outputs/look.py, cluster/keda/scaler.py), and a user's own value is quoted (reading.py).
"""

from collections.abc import Sequence

_MIB_A_GIB = 1024


def one_line(text: object, most: int | None = None) -> str:
    """A text on one line, of at most `most` characters. A space stands for spaces and for what cannot be printed."""
    whole = str(text)
    line = whole if most is None else whole[: 4 * most]
    is_cut = len(line) < len(whole)
    if not line.isprintable():
        line = "".join(char if char.isprintable() else " " for char in line)
    line = " ".join(line.split())
    if most is None or (len(line) <= most and not is_cut):
        return line
    return f"{line[: most - 1].rstrip()}…"


def escaped(text: str, most: int | None = None) -> str:
    r"""A text of at most `most` characters, with escapes such as \x1b for what cannot be printed: for exact names."""
    line = text if most is None else text[: most + 1]
    if not line.isprintable():  # a hundred times as fast as the way below
        line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def listed(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first `most` names, and how many more there are: `a, b and 3 more`. If all are named: `a, b, c`."""
    more = f"{separator.strip(', ')} and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def and_listed(names: Sequence[str], most: int) -> str:
    """As `listed`, for the middle of a sentence. If all are named: `a, b and c`."""
    if len(names) > most:
        return listed(names, most)
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def granted_amounts(
    memory_mib: float | None, cores_percent: float | None, fraction: float | None = None
) -> Sequence[str]:
    """What an allocator granted of a device, as people say it: `10 GiB` and `45 %`; `50 %` of a fraction of 0.5.

    HAMi's 0 stands for what nobody limited, and is left out.
    """
    amounts = []
    if memory_mib:
        is_gib = memory_mib >= _MIB_A_GIB
        amounts.append(f"{round(memory_mib / _MIB_A_GIB, 1):g} GiB" if is_gib else f"{memory_mib:g} MiB")
    percent = cores_percent or (fraction or 0) * 100
    if percent:
        amounts.append(f"{round(percent, 1):g} %")
    return amounts
