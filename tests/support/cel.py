"""The rules of deploy/operator/crds.yaml in Python: what an API server makes of them in CEL.

For each rule's text whether it holds, given `self` and `oldSelf`. A rule that is not here is a KeyError: so none is
left unchecked.
"""

from collections.abc import Callable, Mapping
from typing import Any

Object = Mapping[str, Any]

RULES: dict[str, Callable[[Any, Any], bool]] = {
    "has(self.fields) != has(self.configMap)": lambda new, _: ("fields" in new) != ("configMap" in new),
    "has(self.key) && self.key != '' || has(self.operator) && self.operator == 'Exists'": lambda new, _: bool(
        new.get("key") or new.get("operator") == "Exists"
    ),
    "!has(self.value) || self.value == '' || !has(self.operator) || self.operator != 'Exists'": lambda new, _: (
        not new.get("value") or new.get("operator") != "Exists"
    ),
    "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'": lambda new, _: (
        "tolerationSeconds" not in new or new.get("effect") == "NoExecute"
    ),
    "self == oldSelf": lambda new, old: bool(new == old),
    "self.maxReplicas >= self.minReplicas": lambda new, _: bool(new["maxReplicas"] >= new["minReplicas"]),
    "self.minReplicas > 0 || has(self.idleSeconds)": lambda new, _: new["minReplicas"] > 0 or "idleSeconds" in new,
}


def broken(rule: Object, new: Any, old: Any) -> str | None:
    """What is wrong by a rule of x-kubernetes-validations: its message, or None where it holds."""
    return None if RULES[rule["rule"]](new, old) else str(rule["message"])
