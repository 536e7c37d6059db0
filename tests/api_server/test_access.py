import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.api_client import NAMESPACE, Client
from tests.support.places import DATA

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
ROLES = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles"
USER = f"system:serviceaccount:{NAMESPACE}:nobody"


def rule(groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str], *names: str) -> dict[str, Any]:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs), **named}


@pytest.fixture(autouse=True)
def as_nobody(client: Client) -> None:
    client.server.users = {"token": USER}
    client.server.rules = []


async def test_who_may_not_is_told_so_as_by_a_real_one(client: Client) -> None:
    recorded = json.loads((DATA / "kubernetes-1.36" / "pods-list-403.json").read_text())
    status, answer = await client.ask("GET", "/api/v1/pods", token="token")
    assert status == 403
    assert answer["message"].replace(USER, "X") == recorded["message"].replace(recorded["message"].split('"')[1], "X")
    assert {**answer, "message": ""} == {**recorded, "message": ""}
    recorded = json.loads((DATA / "kubernetes-1.36" / "replicaset-get-403.json").read_text())
    namespace, name = recorded["message"].split('"')[-2], recorded["details"]["name"]
    path = f"/apis/apps/v1/namespaces/{namespace}/replicasets/{name}"
    status, answer = await client.ask("GET", path, token="token")
    assert (status, {**answer, "message": ""}) == (403, {**recorded, "message": ""})


@pytest.mark.parametrize("path", ["/apis/keda.sh/v1alpha1/scaledobjects", "/apis/apps/v9/daemonsets", "/api/v1/nosuch"])
async def test_who_may_not_ask_does_not_learn_what_is_served(client: Client, path: str) -> None:
    assert (await client.ask("GET", path, token="token"))[0] == 403
    client.server.rules = [("", rule(["*"], ["*"], ["list"]))]
    assert (await client.ask("GET", path, token="token"))[0] == 404


async def test_a_token_nobody_has_issued(client: Client) -> None:
    recorded = json.loads((DATA / "kubernetes-1.36" / "401.json").read_text())
    assert await client.ask("GET", PODS, token="another") == (401, recorded)


async def test_rules_allow_verbs_subresources_and_names(client: Client) -> None:
    client.server.rules = [
        (NAMESPACE, rule([""], ["configmaps"], ["get", "patch"], "mine")),
        ("", rule(["apps"], ["deployments/scale"], ["*"])),
    ]
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}}
    mine = f"{CONFIG_MAPS}/mine"
    applied = f"{mine}?fieldManager=tests"
    kind = "application/apply-patch+yaml"
    # an apply that makes an object needs the right to make it, too
    assert (await client.ask("PATCH", applied, item, kind=kind, token="token"))[0] == 403
    client.server.rules.append((NAMESPACE, rule([""], ["configmaps"], ["create"])))
    assert (await client.ask("PATCH", applied, item, kind=kind, token="token"))[0] == 201
    assert (await client.ask("GET", mine, token="token"))[0] == 200
    assert (await client.ask("GET", f"{CONFIG_MAPS}/other", token="token"))[0] == 403
    assert (await client.ask("GET", CONFIG_MAPS, token="token"))[0] == 403
    scale = "/apis/apps/v1/namespaces/other/deployments/x/scale"
    assert (await client.ask("GET", scale, token="token"))[0] == 404
    assert (await client.ask("GET", scale.removesuffix("/scale"), token="token"))[0] == 403


async def test_a_role_gives_no_more_than_its_writer_has(client: Client) -> None:
    client.server.rules = [
        (NAMESPACE, rule(["rbac.authorization.k8s.io"], ["roles"], ["create"])),
        (NAMESPACE, rule([""], ["pods"], ["get", "list"])),
    ]
    role = {"metadata": {"name": "a"}, "rules": [rule([""], ["pods"], ["get"])]}
    assert (await client.ask("POST", ROLES, role, token="token"))[0] == 201
    role = {"metadata": {"name": "b"}, "rules": [rule([""], ["pods", "secrets"], ["get"])]}
    status, answer = await client.ask("POST", ROLES, role, token="token")
    assert status == 403
    assert 'Resources:["secrets"]' in answer["message"]
    assert 'Resources:["pods"]' not in answer["message"]
    client.server.rules.append((NAMESPACE, rule(["rbac.authorization.k8s.io"], ["roles"], ["escalate"])))
    assert (await client.ask("POST", ROLES, role, token="token"))[0] == 201


async def test_a_binding_gives_no_more_than_its_writer_has(client: Client) -> None:
    group = "rbac.authorization.k8s.io"
    client.server.put(
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": {"name": "a", "namespace": NAMESPACE},
            "rules": [rule([""], ["secrets"], ["get"])],
        }
    )
    client.server.rules = [(NAMESPACE, rule([group], ["rolebindings"], ["create"]))]
    bindings = ROLES.replace("roles", "rolebindings")
    binding = {"metadata": {"name": "a"}, "roleRef": {"apiGroup": group, "kind": "Role", "name": "a"}}
    status, answer = await client.ask("POST", bindings, binding, token="token")
    assert status == 403
    assert 'Resources:["secrets"]' in answer["message"]
    client.server.rules.append((NAMESPACE, rule([group], ["roles"], ["bind"], "a")))
    assert (await client.ask("POST", bindings, binding, token="token"))[0] == 201
