"""Which workloads have had a pod with a GPU: a name of which no pod was ever seen is mostly a typo, and no 0.

A workload that scales to zero is asked about while it has pods, too, so what is remembered is what was answered. The
memory is the process's own: after a restart a workload without pods is unknown until its first pod is seen.
"""

from collections import OrderedDict
from http import HTTPStatus

from exporter.cluster.scaling import Scaled, ScalingQuestion, Unanswerable

MOST_WORKLOADS = 10_000


class SeenWorkloads:
    """The workloads that questions were answered about with pods, the last ones; it forgets those asked about least."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def check(self, question: ScalingQuestion, answer: Scaled) -> Scaled:
        """The answer, if it is about a workload that has pods or has had some.

        Raises Unanswerable (404): no pod of a workload of this name was ever seen. 0 would scale in for a typo.
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
