"""Which of the kinds that come and go the API serves now: what its discovery says, which everybody may read.

A CustomResourceDefinition that says Established may not be served yet (recorded on 1.36: 404 for 0.1 s, then 429), and
who watches definitions needs a right for it. What is served is what counts; to ask for it costs three small answers.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from exporter.errors import Unsupported
from exporter.operator.objects.kinds import COME_AND_GO, Kind
from exporter.sources.kubernetes.api import KubernetesApi


async def served(api: KubernetesApi, kinds: Iterable[Kind] = COME_AND_GO) -> AbstractSet[Kind]:
    """Those of the kinds that the API serves.

    Raises:
        SourceError: it is not known.
    """
    wanted: dict[str, list[Kind]] = {}
    for kind in kinds:
        wanted.setdefault(kind.root, []).append(kind)
    found: set[Kind] = set()
    for root, there in wanted.items():
        try:
            answer = await api.get(root)
        except Unsupported:
            continue
        resources = answer.get("resources")
        names = (
            {item.get("name") for item in resources if isinstance(item, dict)} if isinstance(resources, list) else ()
        )
        found.update(kind for kind in there if kind.plural in names)
    return frozenset(found)
