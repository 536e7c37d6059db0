"""RBAC: whether a user may do what a request asks for."""

from collections.abc import Callable, Iterable

from tests.support.api_server.answers import Object, forbidden
from tests.support.api_server.kinds import Kind
from tests.support.api_server.requests import Path

Rules = list[tuple[str, Object]]  # rules by namespace, "" for everywhere
Roles = Callable[[str, str, str], Iterable[Object]]


def check(
    rules: Rules, user: str, verb: str, of: Kind | Path, *, namespace: str = "", name: str = "", subresource: str = ""
) -> None:
    """Refuse what no rule allows, whether or not `of` is served.

    Raises:
        Refused: 403, in a real API server's words.
    """
    resource = f"{of.plural}/{subresource}" if subresource else of.plural
    if any(_allows(rule, verb, of.group, resource, name) for where, rule in rules if where in ("", namespace)):
        return
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    why = f'User "{user}" cannot {verb} resource "{resource}" in API group "{of.group}" {where}'
    raise forbidden(of.group, of.plural, name, why)


def check_grant(rules: Rules, user: str, kind: Kind, item: Object, roles: Roles) -> None:
    """Refuse to give away rights that the writer does not have, as a real API server does.

    They are given by the rules of a role, and by a binding to one; `roles` finds the rules of a role by kind, namespace
    and name. Who may `escalate` roles, or `bind` them, may do so without having the rights.

    Raises:
        Refused: 403, with the rights that are missing.
    """
    namespace = str(item["metadata"].get("namespace", ""))
    held = [rule for where, rule in rules if where in ("", namespace)]
    if kind.name in ("Role", "ClusterRole"):
        given, verb, plural, name = item.get("rules") or (), "escalate", kind.plural, ""
    elif kind.name in ("RoleBinding", "ClusterRoleBinding"):
        role = item.get("roleRef") or {}
        name = str(role.get("name", ""))
        given = roles(str(role.get("kind", "")), namespace, name)
        verb, plural = "bind", f"{str(role.get('kind', '')).lower()}s"
    else:
        return
    missing = [
        f'{{APIGroups:["{group}"], Resources:["{resource}"], Verbs:["{one}"]}}'
        for rule in given
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        for one in rule.get("verbs") or ()
        if not any(_grants(own, one, group, resource, rule.get("resourceNames") or ()) for own in held)
    ]
    if missing and not any(_allows(own, verb, kind.group, plural, name) for own in held):
        who = f'user "{user}" (groups=["system:authenticated"])'
        said = f"{who} is attempting to grant RBAC permissions not currently held"
        raise forbidden(kind.group, kind.plural, str(item["metadata"].get("name")), f"{said}:\n" + "\n".join(missing))


def _allows(rule: Object, verb: str, group: str, resource: str, name: str) -> bool:
    names = rule.get("resourceNames") or ()
    return _grants({**rule, "resourceNames": ()}, verb, group, resource, ()) and (not names or name in names)


def _grants(rule: Object, verb: str, group: str, resource: str, names: Iterable[str]) -> bool:
    own = rule.get("resourceNames") or ()
    return (
        _has(rule.get("apiGroups") or (), group)
        and _has(rule.get("resources") or (), resource)
        and _has(rule.get("verbs") or (), verb)
        and (not own or (bool(names) and set(names) <= set(own)))
    )


def _has(listed: Iterable[str], wanted: str) -> bool:
    return any(entry in ("*", wanted) for entry in listed)
