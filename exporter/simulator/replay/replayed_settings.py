"""The settings of a bundle, for an exporter in front of its replay: places of the replay in place of the recorded ones.

Pure.

Tests: tests/simulator/replay/test_endless_patterns.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.bundle.recording import PeerAnswer, Recording
from exporter.config.node_settings import SETTINGS
from exporter.config.page_settings import DEFAULT_DCGM_URL, source_names
from exporter.errors import ExporterError
from exporter.simulator.replay.endless_patterns import refuse_endless

_DEFAULTS = {setting.name: setting.default for setting in SETTINGS}

# Settings about the machine that was recorded, its secrets, and what an exporter writes or sends.
_LEFT_OUT = frozenset(
    {
        "accounting.state",
        "dcgm.http-config",
        "dcgm.selector",
        "dcgm.selector-namespace",
        "kubernetes.ca-file",
        "kubernetes.token-file",
        "log.format",
        "log.level",
        "probe.mode",
    }
)
_LEFT_OUT_GROUPS = ("web.", "otlp.")
MOST_PAGES = 256  # each has a server; a node has one page, and --dcgm.selector finds 64 at most


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPage:
    """A source of GPU samples in a bundle.

    Attributes:
        name: the source's name, as in labels of /metrics.
        question: its URL, or the path of its file.
        is_file: whether it is a file.
        is_found: whether it is the page of a pod that --dcgm.selector found.
    """

    name: str
    question: str
    is_file: bool = False
    is_found: bool = False


def answers_of(recording: Recording, peer: str) -> Iterable[PeerAnswer]:
    """The answers of a kind of peer, at all moments."""
    for moment in recording.moments:
        for answer in moment.answers:
            if answer.peer == peer:
                yield answer


def recorded_pages(recording: Recording) -> Sequence[RecordedPage]:
    """The sources of GPU samples: first those that settings name, in their order, and then discovered ones.

    Raises:
        ExporterError: a URL cannot be read, or there are more pages than an exporter has.
    """
    settings = recording.settings
    pages: dict[str, RecordedPage] = {}

    urls = settings.get("dcgm.url", ())
    is_nvml = settings.get("dcgm.mode") == ("off",)
    if not urls and not is_nvml and not settings.keys() & {"dcgm.file", "dcgm.selector"}:
        urls = (DEFAULT_DCGM_URL,)
    try:
        names = source_names(urls)
    except ValueError as error:
        raise ExporterError(f"the bundle's --dcgm.url cannot be read: {error}") from error
    for name, url in zip(names, urls, strict=True):
        pages[name] = RecordedPage(name=name, question=url)

    for path in settings.get("dcgm.file", ()):
        name = f"file:{path}"
        pages[name] = RecordedPage(name=name, question=path, is_file=True)

    for answer in answers_of(recording, "page"):
        if not answer.name.startswith("file:"):
            page = RecordedPage(name=answer.name, question=answer.question, is_found="dcgm.selector" in settings)
            pages.setdefault(answer.name, page)
    if len(pages) > MOST_PAGES:
        raise ExporterError(f"the bundle has {len(pages)} pages of GPU samples; at most {MOST_PAGES} can be played")
    return tuple(pages.values())


def replayed_settings(recording: Recording, places: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The settings of an exporter in front of the replay, by flag without dashes.

    Args:
        recording: what is replayed.
        places: the settings that name places of the replay. An empty one leaves the setting out.

    Raises:
        ExporterError: a regular expression of the bundle may run for a very long time.
    """
    settings = {
        name: texts
        for name, texts in recording.settings.items()
        if name in _DEFAULTS and name not in _LEFT_OUT and not name.startswith(_LEFT_OUT_GROUPS)
    }
    for name, patterns in settings.items():
        refuse_endless(name, patterns)
    for name, texts in places.items():
        settings.pop(name, None)
        if texts:
            settings[name] = tuple(texts)
    return settings


def recorded_place(recording: Recording, setting: str) -> str:
    """What a setting of one value said where the bundle was made; "" if nothing."""
    texts = recording.settings.get(setting) or (_DEFAULTS[setting] or "",)
    return texts[0]
