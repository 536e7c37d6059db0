"""The memory that a recording may take: what is the same at several moments is one object, and counts once.

A bundle is made beside the exporter, in its container, whose memory is limited.

Tests: tests/bundle/test_newest_answers.py.
"""

from dataclasses import replace

from exporter.bundle.recording import RecordedMoment

MOST_BYTES = 64 * 1024 * 1024
# What is kept is copied when its names are replaced, and once more when it is packed.
_COPIES = 3
_SPARE_BYTES = 24 * 1024 * 1024
_BYTES_OF_A_CALL = 64
_BYTES_OF_AN_ENTRY = 200


def budget_bytes(room: int | None) -> int:
    """The bytes that moments may take. `room` is what the container may still take, in bytes; None: it has no limit."""
    return MOST_BYTES if room is None else min(MOST_BYTES, max(0, room - _SPARE_BYTES) // _COPIES)


class Budget:
    """Counts the bytes of moments.

    `is_full`: the last moment did not fit, so it is to be dropped, and none is to follow. `most_bytes` is the limit.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.is_full = False
        self.most_bytes = most_bytes
        self._left = most_bytes
        self._bodies: dict[bytes, bytes] = {}

    def shared(self, moment: RecordedMoment) -> RecordedMoment:
        """The moment, with the bodies that an earlier one has, too, as the same objects.

        Its answers, files and outputs count with their bodies' bytes, calls and entries by what they take about.
        """
        entries = len(moment.answers) + len(moment.files) + len(moment.outputs) + len(moment.kernel_log)
        self._left -= _BYTES_OF_AN_ENTRY * entries + _BYTES_OF_A_CALL * len(moment.calls)
        shared = replace(
            moment,
            answers=tuple(replace(answer, body=self._same(answer.body)) for answer in moment.answers),
            files={place: self._same(content) for place, content in moment.files.items()},
            outputs={path: self._same(body) for path, body in moment.outputs.items()},
        )
        self.is_full = self._left < 0
        return shared

    def _same(self, body: bytes) -> bytes:
        kept = self._bodies.get(body)
        if kept is None:
            kept = self._bodies[body] = body
            self._left -= len(body)
        return kept
