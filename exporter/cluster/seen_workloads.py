"""The workloads that have had a pod with a GPU. A name without any pod so far is mostly a typo, and its value is not 0.

An autoscaler asks about a workload also while it has pods, so it is enough to remember the workloads of past answers.
The process alone remembers them: after a restart, a workload without pods is unknown until its first pod is seen.

Tests: tests/cluster/test_scaling.py.
"""

from collections import OrderedDict
from http import HTTPStatus

from exporter.cluster.scaling import Scaled, ScalingQuestion, Unanswerable

MOST_WORKLOADS = 10_000


class SeenWorkloads:
    """The workloads that had pods in an answer. If there are too many, the one not asked about for longest goes."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def check(self, question: ScalingQuestion, answer: Scaled) -> Scaled:
        """Return the answer, if it is about a workload that has pods or has had some.

        Raises:
            Unanswerable: no pod of a workload of this name was ever seen (404). The name may be a typo, and with the
                value 0 the autoscaler would remove pods.
        """
        workload = (question.namespace, question.kind.lower(), question.workload)
        if answer.pods:
            self._seen[workload] = None
        if workload not in self._seen:
            raise Unanswerable(
                HTTPStatus.NOT_FOUND,
                f"no pod of a workload {question.namespace}/{question.workload} has been seen with a GPU since this"
                " role started, so nobody can tell a workload without pods from a wrong name",
                "see that namespace and name are those of the pods' topmost owner, as top shows it; once its first pod"
                " holds a GPU, the answer is a number, and 0 when it has no pods any more",
            )
        self._seen.move_to_end(workload)
        while len(self._seen) > MOST_WORKLOADS:
            self._seen.popitem(last=False)
        return answer
