"""Rules in CEL of custom resources, as an API server evaluates them."""

from functools import cache
from typing import Any

import celpy
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError


def reviewer(rule: dict[str, Any], value: Any, before: Any) -> str | None:
    """What a rule of `x-kubernetes-validations` says is wrong; None where it holds.

    A rule that cannot be evaluated says so, as it does in a real API server.
    """
    given = {"self": json_to_cel(value), "oldSelf": json_to_cel(before)}
    try:
        if _program(rule["rule"]).evaluate(given):
            return None
        if "messageExpression" in rule:
            return str(_program(rule["messageExpression"]).evaluate(given))
    except CELEvalError as error:
        return f"rule evaluation error: {error}"
    return str(rule.get("message") or f"failed rule: {rule['rule']}")


@cache
def _program(text: str) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(text))
