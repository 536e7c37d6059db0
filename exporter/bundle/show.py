"""What `bundle show` prints: what a bundle is, and every word of it that came from outside. Pure."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby

from exporter.bundle.outside_words import outside_words
from exporter.bundle.recording import PeerAnswer, Recording
from exporter.model.name_order import as_people_count
from exporter.wording import counted, escaped, listed

_LINES_OF_A_KIND = 3
_MOST_ABSENCES = 12
_MOST_SETTINGS = 20
_LONGEST_WORD = 200
_LONGEST_LINE = 500
_LONGEST_NUMBER = 10
_SHORTEST_RUN = 3
_LATEST = 253_402_300_799  # the last second of the year 9999
_WORDS_THAT_STAY = (
    "Not shown are words that the program, Kubernetes or a driver says itself, such as server or gpu. They stay in\n"
    "sentences; where one stands as the name of a namespace, node, pod or container, it is replaced."
)
_NUMBERED = re.compile(r"(.*?)(\d+)")


def shown(recording: Recording, name: str, size: int, *, width: int = 100, is_all: bool = False) -> str:
    """What a bundle is and which words from outside it has, in lines of about `width` characters.

    Without `is_all` a kind of words has at most three lines. `size` is the file's, in bytes.
    """
    lines = [*_facts(recording, name, size, is_all=is_all), ""]
    words, has_all = outside_words(recording)
    lines.append("Words that came from outside:" if words else "No word came from outside.")
    for kind, values in words.items():
        lines += _of_kind(f"  {kind} ({len(values)}): ", sorted(values, key=as_people_count), width, is_all=is_all)

    if not recording.is_plain:
        lines.append(_WORDS_THAT_STAY)
    if not has_all:
        lines.append("There are more words than any program makes: these are not all.")

    return "".join(f"{line}\n" for line in lines)


def _facts(recording: Recording, name: str, size: int, *, is_all: bool) -> Iterator[str]:
    """What the bundle is: its version, its times, what it has and what it lacks."""
    yield f"{_word(name)}: {size / 1024:,.0f} KiB, made by version {_word(recording.made_by)}"
    if recording.is_plain:
        yield "Names are kept (--plain): whoever has the file reads them."
    else:
        yield "Names are replaced."

    first, last = recording.moments[0].at_seconds, recording.moments[-1].at_seconds
    times = _moment(first) if len(recording.moments) == 1 else f"{_moment(first)} to {_moment(last)}"
    yield f"Moments: {len(recording.moments)}, {times}"
    yield f"Has: {', '.join(_parts(recording))}"
    settings = [f"--{key} {','.join(values)}" for key, values in sorted(recording.settings.items())]
    if settings:
        chosen = settings if is_all else settings[:_MOST_SETTINGS]
        more = f", and {len(settings) - len(chosen)} more" if len(chosen) < len(settings) else ""
        yield f"Settings: {'; '.join(map(_word, chosen))}{more}"

    if recording.versions:
        yield "Versions: " + ", ".join(f"{_word(key)} {_word(value)}" for key, value in recording.versions.items())

    absences = recording.absences if is_all else recording.absences[:_MOST_ABSENCES]
    for absence in absences:
        yield f"Lacks {_word(absence.what)}: {escaped(str(absence.why), _LONGEST_LINE)}"

    if len(absences) < len(recording.absences):
        yield f"Lacks {len(recording.absences) - len(absences)} things more (--all)"


def _parts(recording: Recording) -> Iterator[str]:
    """How much of what a recording has."""
    moments = recording.moments
    names = {_peer(answer) for moment in moments for answer in moment.answers}
    if names:
        yield f"answers of {listed(sorted(names), 8)}"

    amounts = {
        ("file", ""): sum(len(moment.files) for moment in moments),
        ("call", " of NVML"): sum(len(moment.calls) for moment in moments),
        ("record", " of the kernel's log"): sum(len(moment.kernel_log) for moment in moments),
        ("output", ""): sum(len(moment.outputs) for moment in moments),
        ("answer", " of the running exporter"): len(recording.of_exporter),
        ("line", " of its log"): len(recording.log),
        ("line", " of doctor's report"): len(recording.report.splitlines()),
    }

    yield from (f"{counted(count, noun)}{of_what}" for (noun, of_what), count in amounts.items() if count)


def _peer(answer: PeerAnswer) -> str:
    """The peer of an answer by its kind, and by the source's name where that is another."""
    return answer.peer if answer.name == answer.peer else f"{answer.peer} {_word(answer.name)}"


def _of_kind(title: str, words: Sequence[str], width: int, *, is_all: bool) -> Iterator[str]:
    """The words of a kind in lines. Words that only differ in a number that counts up are one entry: pod-1 to pod-9."""
    entries = [_word(word) for word in words] if is_all else [*_runs(words)]
    line = title
    indent = " " * 4
    count = 1
    for number, entry in enumerate(entries):
        end = "" if number == len(entries) - 1 else ", "
        if len(line) + len(entry) > width and line.strip():
            if count == _LINES_OF_A_KIND and not is_all:
                yield f"{line}and {len(entries) - number} more (--all)"
                return
            yield line.rstrip()
            line = indent
            count += 1
        line += f"{entry}{end}"

    yield line


def _runs(words: Sequence[str]) -> Iterator[str]:
    """The words, with runs of numbers put together."""

    def shape(numbered: tuple[int, str]) -> object:
        place, word = numbered
        match = _NUMBERED.fullmatch(word)
        return (match[1], int(match[2]) - place) if match and len(match[2]) < _LONGEST_NUMBER else word

    for _, run in groupby(enumerate(words), shape):
        same = [word for _, word in run]
        if len(same) >= _SHORTEST_RUN:
            yield f"{_word(same[0])} to {_word(same[-1])}"
        else:
            yield from map(_word, same)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(min(seconds, _LATEST), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _word(text: str) -> str:
    return escaped(text, _LONGEST_WORD)
