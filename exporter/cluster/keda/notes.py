"""What the log says of triggers: one line where the answer to a ScaledObject turns into an error, or back.

KEDA asks several times a minute, and names come from whoever can reach the port: both are limited.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from exporter.cluster.keda.trigger import Trigger
from exporter.log import log

MOST_REMEMBERED = 4096
MOST_LINES = 60
PERIOD_SECONDS = 60.0
_GOOD = "good"

_Key = tuple[str, str, str, str]


class Notes:
    """Remembers how each trigger's last answer was."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: OrderedDict[_Key, str] = OrderedDict()
        self._period_began = clock()
        self._lines = self._left_out = 0

    def __len__(self) -> int:
        return len(self._last)

    def answered(self, trigger: Trigger, workload: str, pods: int) -> None:
        """There was a value, over so many pods."""
        if pods:
            self._turn(trigger, _GOOD, logging.INFO, "KEDA is answered again", workload=workload)
            return
        self._turn(
            trigger,
            "no pods",
            logging.WARNING,
            "no pod of a workload that KEDA scales has a GPU: its value is 0",
            workload=workload,
            remedy="without a pod there is no GPU metric: from 0 to 1 another trigger is needed. If there are pods,"
            " name their topmost owner with `workload`",
        )

    def refused(self, trigger: Trigger, code: str, why: str) -> None:
        """There was an error: KEDA leaves the replicas as they are."""
        self._turn(trigger, code, logging.WARNING, "KEDA is answered with an error", code=code, error=why)

    def _turn(self, trigger: Trigger, now: str, level: int, message: str, **fields: object) -> None:
        key = (trigger.namespace, trigger.scaled_object, trigger.metric, trigger.workload)
        before = self._last.get(key, _GOOD)
        self._last[key] = now
        self._last.move_to_end(key)
        while len(self._last) > MOST_REMEMBERED:
            self._last.popitem(last=False)
        if before != now and self._may_write():
            if self._left_out:
                fields["left_out_since_the_last"] = self._left_out
                self._left_out = 0
            where = f"{trigger.namespace}/{trigger.scaled_object}"
            log(level, message, scaled_object=where, metric=trigger.metric, **fields)

    def _may_write(self) -> bool:
        now = self._clock()
        if now - self._period_began >= PERIOD_SECONDS:
            self._period_began, self._lines = now, 0
        self._lines += 1
        if self._lines > MOST_LINES:
            self._left_out += 1
            return False
        return True
