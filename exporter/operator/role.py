"""The operator as the service runs it: made of a configuration and of the role until now."""

import logging
from collections.abc import Mapping
from typing import Any

from exporter import __version__
from exporter.config.operator import OperatorConfig
from exporter.log import debug, log
from exporter.operator.build import make_operator
from exporter.operator.operator import Operator
from exporter.role import RoleKind


def make_role(config: OperatorConfig, before: object = None) -> Operator:
    """An operator that goes on with what `before` hands over, where that was one."""
    return make_operator(config, before.lasting if isinstance(before, Operator) else None)


def say_what_is_done(config: OperatorConfig) -> None:
    """One line that says what will be looked after, and every doubt."""
    operator = config.operator
    log(
        logging.INFO,
        "operating",
        namespaces=",".join(operator.namespaces) or "all",
        lease=f"{operator.lease_namespace}/{operator.lease_name}" if operator.leader_election == "on" else "none",
    )
    for doubt in config.doubts:
        log(logging.WARNING, doubt.says, remedy=doubt.remedy)
    for name, shown in config.shown().items():
        debug("setting", name=name, value=shown["value"], given_by=shown["from"])


def _about(config: OperatorConfig, _: object) -> Mapping[str, Any]:
    return {"version": __version__, "settings": config.shown()}


OPERATOR = RoleKind(make=make_role, about=_about, say=say_what_is_done, names=lambda _: {"role": "operator"})
