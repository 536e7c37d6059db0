"""What a server says of a span beside the accounts: the GPUs there are, who was seen, and what nobody saw."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Facts:
    """Added to while the span is read.

    `models` names the model of a GPU by its UUID. `capacity` has GPU-seconds that there were, by node and model.
    `seen_ms` is for how long each node was scraped; `gaps` what an exporter itself did not see, in seconds by reason.
    `nodes_elsewhere` have GPUs as kube-state-metrics says; `retention` is what the server says of itself, "" where it
    does not. `unanswered` are questions that it refused, by kind of error; `odd` counts values that were no numbers.
    `has_renamed`: Prometheus put its own labels in the place of the rows'.
    """

    models: dict[str, str] = field(default_factory=dict)
    capacity: dict[tuple[str, str], float] = field(default_factory=dict)
    seen_ms: dict[str, float] = field(default_factory=dict)
    gaps: dict[str, float] = field(default_factory=dict)
    nodes_elsewhere: set[str] = field(default_factory=set)
    has_exporter: bool = False
    retention: str = ""
    warnings: tuple[str, ...] = ()
    unanswered: dict[str, str] = field(default_factory=dict)
    odd: int = 0
    began_ms: int | None = None
    has_renamed: bool = False
    restarts: Mapping[str, int] = field(default_factory=dict)
