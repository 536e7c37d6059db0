"""What Grafana does with a dashboard before it asks Prometheus: variables are filled in, and what they offer is read.

After packages/grafana-prometheus of Grafana: `interpolateQueryExpr`, `prometheusSpecialRegexEscape`, and the queries of
variables, `label_values(metric, label)` and `query_result(query)`.
"""

import json
import re
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.prometheus import Prometheus

Model = dict[str, Any]
# what a choice has: a text, several values, or ALL of them
Chosen = Mapping[str, str | Sequence[str]]
ALL = "$__all"
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?::\w+)?\}")
_SPECIAL = re.compile(r"[$^*{}\[\]'+?.()|]")


def dashboard(path: Path) -> Model:
    """A dashboard's model."""
    model: Model = json.loads(path.read_text())
    return model


def panels(model: Model) -> Iterator[Model]:
    """All panels, those of folded rows included."""
    for panel in model["panels"]:
        yield panel
        yield from panel.get("panels", [])


def variables(model: Model) -> dict[str, Model]:
    """The choices of a dashboard, by name, in their order."""
    return {variable["name"]: variable for variable in model["templating"]["list"]}


def names_in(text: str) -> set[str]:
    """The variables that a text names."""
    return {first or second for first, second in _VARIABLE.findall(text)}


def filled(expression: str, model: Model, chosen: Chosen, builtin: Mapping[str, str]) -> str:
    """A query with its variables filled in. A name that there is not stays, as it does in Grafana."""
    known = variables(model)

    def one(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name in builtin:
            return builtin[name]
        return _text(known[name], chosen[name]) if name in known else match[0]

    return _VARIABLE.sub(one, expression)


def _text(variable: Model, value: str | Sequence[str]) -> str:
    if value == ALL:
        return str(variable["allValue"])
    if not variable.get("multi") and not variable.get("includeAll"):
        assert isinstance(value, str)
        return value.replace("\\", "\\\\")
    escaped = [_escaped(each) for each in ([value] if isinstance(value, str) else value)]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def _escaped(value: str) -> str:
    return _SPECIAL.sub(lambda found: "\\\\" + found[0], value.replace("\\", "\\\\\\\\"))


def options(server: Prometheus, variable: Model, query: str, seconds: float) -> list[str]:
    """The values that a variable offers; its query has been filled in."""
    if values := re.fullmatch(r"label_values\((?:(.+),\s*)?(\w+)\)", query):
        now = time.time()
        span: dict[str, Any] = {"start": now - seconds, "end": now}
        asked = urllib.parse.urlencode(span | {"match[]": values[1]})
        return [str(value) for value in server.ask(f"label/{values[2]}/values?{asked}")]
    result = re.fullmatch(r"query_result\((.+)\)", query)
    assert result, query
    texts = []
    for labels, value in server.texts(result[1]):
        name = labels.pop("__name__", "")
        inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
        texts.append(f"{name}{{{inside}}} {value} {round(time.time() * 1000)}")
    # JavaScript names groups without the P
    pattern = re.compile(variable["regex"].strip("/").replace("(?<", "(?P<"))
    return [found["value"] for text in texts if (found := pattern.search(text))]
