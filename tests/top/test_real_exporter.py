"""`top` against the real exporter in front of the simulated node: each mode of sharing, TLS and passwords."""

import asyncio
import json
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import yaml

from tests.support.certificates import Authority
from tests.support.exporter import Start
from tests.support.simulated import SimulatedNode
from tests.top.test_once import top

Owners = dict[tuple[str, str], set[tuple[str, str, str]]]


async def shown(base: str) -> Any:
    ended = await asyncio.to_thread(top, "--json", "--url", base)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def owners_of(devices: list[dict[str, Any]]) -> Owners:
    return {
        (device["uuid"], device["mig_instance_id"] or ""): {
            (owner["namespace"], owner["pod"], owner["container"]) for owner in device["owners"]
        }
        for device in devices
        if device["owners"]
    }


# issue 12, "Must show" 2
@pytest.mark.parametrize("sharing", ["copy", "split", "device"])
async def test_it_shows_who_the_kubelet_says_holds_a_gpu(start: Start, simulated: SimulatedNode, sharing: str) -> None:
    exporter = await start(sharing=sharing, inventory_file=str(simulated.inventory_file))
    found = await shown(exporter.base)
    _, text = await exporter.get("/debug/mapping")
    truth = {
        (seen["uuid"], seen["gpu_i_id"]): {
            (owner["namespace"], owner["pod"], owner["container"]) for owner in seen["owners"]
        }
        for seen in json.loads(text)["seen"]
        if seen["owners"]
    }
    assert max(map(len, truth.values())) > 1, "a GPU is shared"
    assert owners_of(found["devices"]) == truth
    assert found["counts"]["gpus"] == len(simulated.world.gpus)
    assert {source["name"] for source in found["sources"] if source["up"]} >= {"kubelet"}
    for device in found["devices"]:
        if device["shared"]:
            # the whole GPU's, however its rows have them
            assert device["memory_total_mib"] == pytest.approx(81_000, rel=0.02)


async def test_it_comes_with_a_password_and_knows_the_certificate(
    start: Start, simulated: SimulatedNode, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, "ours")
    server = authority.issue("server", "gpu-node.example")
    web = tmp_path / "web.yaml"
    users = {"prometheus": bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()}
    tls = {"cert_file": str(server.cert), "key_file": str(server.key)}
    web.write_text(yaml.safe_dump({"basic_auth_users": users, "tls_server_config": tls}))
    exporter = await start(web_config_file=str(web))
    port = exporter.base.rpartition(":")[2]

    async def asked(config: dict[str, Any] | None, *, here: bool = False) -> tuple[int, str]:
        file = tmp_path / "http.yaml"
        file.write_text(yaml.safe_dump(config))
        given = ["--http-config", str(file)] if config is not None else []
        if here:
            ended = await asyncio.to_thread(top, "--once", *given, HTTP_LISTEN_PORT=port)
        else:
            ended = await asyncio.to_thread(top, "--once", "--url", f"https://127.0.0.1:{port}", *given)
        return ended.returncode, (ended.stdout or ended.stderr).decode()

    (tmp_path / "password").write_text("right\n")
    login = {"basic_auth": {"username": "prometheus", "password_file": "password"}}
    known = {"tls_config": {"ca_file": str(authority.ca), "server_name": "gpu-node.example"}}
    code, said = await asked({**login, **known})
    assert (code, said.startswith("node ")) == (0, True), said
    # on this machine the certificate's name makes no difference
    code, said = await asked(login, here=True)
    assert (code, said.startswith("node ")) == (0, True), said
    code, said = await asked(login)
    assert (code, "certificate verify failed" in said or "unable to get local issuer" in said) == (1, True), said
    code, said = await asked({**known, "basic_auth": {"username": "prometheus", "password": "wrong"}})
    assert (code, "asks for a password: give it with --http-config" in said) == (1, True), said
    code, said = await asked(None, here=True)
    assert (code, "asks for a password: give it with --http-config" in said) == (1, True), said
    assert "right" not in said


async def test_what_is_not_this_exporter_is_named(simulated: SimulatedNode) -> None:
    for url, says in (
        (simulated.url.removesuffix("/metrics"), "is not this exporter (HTTP status 404)"),
        (simulated.url.removesuffix("/metrics").replace("http:", "https:"), "no TLS with"),
    ):
        ended = await asyncio.to_thread(top, "--once", "--url", url)
        assert (ended.returncode, ended.stdout) == (1, b"")
        assert says in ended.stderr.decode()
