"""deploy/prometheus/prometheusrule.yaml: the same rules as an object for the Prometheus operator.

`make golden` writes it anew.
"""

from typing import Any

import yaml

from tests.rules.shipped import PROMETHEUS, groups
from tests.support import quick_yaml
from tests.support.golden import Golden

OBJECT = PROMETHEUS / "prometheusrule.yaml"
HEADER = """\
# The rules of rules/ beside this file as an object for the Prometheus operator. It is made of them: change them, then
# run `make golden`
"""


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as they stand in the rules."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 # it would write the same labels only once
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def made() -> dict[str, Any]:
    """The object; its labels are the PodMonitor's."""
    monitor = quick_yaml.load((PROMETHEUS / "podmonitor.yaml").read_text())
    return {
        "apiVersion": monitor["apiVersion"],
        "kind": "PrometheusRule",
        "metadata": monitor["metadata"],
        "spec": {"groups": list(groups())},
    }


def test_the_object_has_the_rules(golden: Golden) -> None:
    text = HEADER + yaml.dump(made(), Dumper=_Dumper, sort_keys=False, width=118)
    golden.holds(OBJECT, text)
    assert quick_yaml.load(text) == made()


def test_the_object_has_the_shape_of_its_custom_resource() -> None:
    """What the CRD of the operator (v1, since 0.60) knows; it refuses other keys."""
    spec = quick_yaml.load(OBJECT.read_text())["spec"]
    assert spec.keys() == {"groups"}
    names = [group["name"] for group in spec["groups"]]
    assert len(set(names)) == len(names)
    for group in spec["groups"]:
        assert {"name", "rules"} <= group.keys() <= {"name", "interval", "rules", "limit", "partial_response_strategy"}
        for rule in group["rules"]:
            kind = "record" if "record" in rule else "alert"
            assert {kind, "expr"} <= rule.keys() <= {kind, "expr", "for", "labels", "annotations"}
            texts = (rule[kind], rule["expr"], *rule.get("labels", {}).values(), *rule.get("annotations", {}).values())
            assert all(isinstance(text, str) for text in texts)
