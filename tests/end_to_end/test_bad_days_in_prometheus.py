"""Real Prometheus across restarts, behind TLS and passwords; curl at the same doors."""

import asyncio
import signal
import time
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import bcrypt
import pytest
import yaml

from tests.faults.lab import a_lab
from tests.support.certificates import Authority
from tests.support.components import real
from tests.support.exporter import Start
from tests.support.prometheus import started

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

Query = Any


class Prometheus:
    def __init__(self, base: str) -> None:
        self.base = base
        self.session = aiohttp.ClientSession()

    async def query(self, text: str) -> list[tuple[dict[str, str], float]]:
        url = f"{self.base}/api/v1/query?query={urllib.parse.quote(text)}"
        async with self.session.get(url) as answer:
            found = (await answer.json())["data"]["result"]
        return [(row["metric"], float(row["value"][1])) for row in found]

    async def until(self, text: str, seconds: float = 30) -> list[tuple[dict[str, str], float]]:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    if found := await self.query(text):
                        return found
                except (aiohttp.ClientError, KeyError):
                    pass  # it is still starting
                await asyncio.sleep(0.2)

    async def errors(self) -> dict[str, str]:
        async with self.session.get(f"{self.base}/api/v1/targets") as answer:
            targets = (await answer.json())["data"]["activeTargets"]
        return {target["labels"]["job"]: target["lastError"] for target in targets}


@asynccontextmanager
async def prometheus(folder: Path, *jobs: dict[str, Any]) -> AsyncIterator[Prometheus]:
    with started(folder, jobs) as base:
        found = Prometheus(base)
        try:
            yield found
        finally:
            await found.session.close()


def job(name: str, base: str, **more: Any) -> dict[str, Any]:
    scheme, _, address = base.partition("://")
    return {
        "job_name": name,
        "metrics_path": "/gpu/metrics",
        "honor_labels": True,
        "scheme": scheme,
        "static_configs": [{"targets": [address]}],
        **more,
    }


async def test_across_restarts_no_scrape_is_missing_and_no_series_renamed(tmp_path: Path) -> None:
    async with a_lab({}) as lab, prometheus(tmp_path, job("gpu", lab.base)) as server:
        await server.until("DCGM_FI_DEV_POWER_USAGE")
        began = time.monotonic()
        await asyncio.sleep(2)
        await lab.end_kubelet(signal.SIGKILL)
        await asyncio.sleep(3)
        await lab.start_kubelet(empty_seconds=2, partial_seconds=2)
        await asyncio.sleep(6)
        kubelet_part = int(time.monotonic() - began)
        ((_, lowest),) = await server.query(f'min_over_time(up{{job="gpu"}}[{kubelet_part}s])')
        assert lowest == 1, "a scrape failed while the kubelet restarted"
        went = time.monotonic()
        await lab.upstream.stop()
        await asyncio.sleep(3)
        await lab.upstream.start()
        away_seconds = time.monotonic() - went
        await asyncio.sleep(3)
        window = int(time.monotonic() - began)
        ((_, scrapes),) = await server.query(f'count_over_time(up{{job="gpu"}}[{window}s])')
        ((_, failed),) = await server.query(f'count_over_time((up{{job="gpu"}} == 0)[{window}s:1s])')
        assert window - 1 <= scrapes <= window + 1
        assert 2 <= failed <= away_seconds + 2, "dcgm-exporter was away for 3 s"
        # a series that changed its name would leave another one behind in the window
        ever = await server.query(f"count_over_time(DCGM_FI_DEV_POWER_USAGE[{window}s])")
        now = await server.query("DCGM_FI_DEV_POWER_USAGE")
        names = [{key: value for key, value in labels.items() if key != "__name__"} for labels, _ in ever]
        assert sorted(map(str, names)) == sorted(
            str({key: value for key, value in labels.items() if key != "__name__"}) for labels, _ in now
        )
        owned = [labels for labels in names if labels.get("pod")]
        assert len(owned) >= 3
        for labels, count in ever:
            if labels.get("pod"):
                assert count >= scrapes - failed - 1, labels


@pytest.fixture
async def protected(start: Start, tmp_path: Path) -> tuple[str, Authority]:
    authority = Authority(tmp_path, "ours")
    server = authority.issue("server", "127.0.0.1")
    authority.issue("client", "prometheus.monitoring")
    Authority(tmp_path, "theirs").issue("stranger", "prometheus.monitoring")
    path = tmp_path / "web.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "tls_server_config": {
                    "cert_file": server.cert.name,
                    "key_file": server.key.name,
                    "client_auth_type": "RequireAndVerifyClientCert",
                    "client_ca_file": authority.ca.name,
                },
                "basic_auth_users": {"prometheus": bcrypt.hashpw(b"right", bcrypt.gensalt(10)).decode()},
            }
        )
    )
    exporter = await start(web_config_file=str(path))
    return exporter.base.replace("http:", "https:"), authority


async def test_prometheus_scrapes_with_its_password_and_certificate_alone(
    protected: tuple[str, Authority], tmp_path: Path
) -> None:
    base, authority = protected

    def tls(name: str | None = "client") -> dict[str, str]:
        pair = {"cert_file": f"{tmp_path}/{name}.pem", "key_file": f"{tmp_path}/{name}-key.pem"} if name else {}
        return {"ca_file": str(authority.ca), **pair}

    right = {"username": "prometheus", "password": "right"}
    jobs = (
        job("right", base, tls_config=tls(), basic_auth=right),
        job("wrong", base, tls_config=tls(), basic_auth={**right, "password": "wrong"}),
        job("nobody", base, tls_config=tls()),
        job("stranger", base, tls_config=tls("stranger"), basic_auth=right),
        job("bare", base, tls_config=tls(None), basic_auth=right),
        job("plain", base.replace("https:", "http:"), basic_auth=right),
    )
    async with prometheus(tmp_path, *jobs) as server:
        await server.until('DCGM_FI_DEV_POWER_USAGE{pod!=""}')
        await server.until("count(up) == 6 and count(up == 0) == 5")
        up = {labels["job"]: value for labels, value in await server.query("up")}
        errors = await server.errors()
    assert up == {"right": 1, "wrong": 0, "nobody": 0, "stranger": 0, "bare": 0, "plain": 0}
    assert errors["right"] == ""
    assert "401" in errors["wrong"]
    assert "401" in errors["nobody"]


async def test_curl(protected: tuple[str, Authority], tmp_path: Path) -> None:
    base, authority = protected

    async def curl(path: str, *options: str) -> tuple[int, str]:
        command = [real("curl"), "-s", "-o", tmp_path / "out", "-w", "%{http_code}", "--cacert", authority.ca, *options]
        ran = await asyncio.create_subprocess_exec(*map(str, command), base + path, stdout=asyncio.subprocess.PIPE)
        said, _ = await ran.communicate()
        return ran.returncode or 0, said.decode()

    mine = ("--cert", f"{tmp_path}/client.pem", "--key", f"{tmp_path}/client-key.pem")
    theirs = ("--cert", f"{tmp_path}/stranger.pem", "--key", f"{tmp_path}/stranger-key.pem")
    assert await curl("/gpu/metrics", *mine, "-u", "prometheus:right") == (0, "200")
    assert "DCGM_FI_DEV_POWER_USAGE" in (tmp_path / "out").read_text()
    assert await curl("/gpu/metrics", *mine, "-u", "prometheus:wrong") == (0, "401")
    assert await curl("/gpu/metrics", *mine) == (0, "401")
    for path in ("/-/healthy", "/healthz", "/-/ready"):
        assert await curl(path, *mine) == (0, "200")
    for options in (("-u", "prometheus:right"), (*theirs, "-u", "prometheus:right")):
        code, status = await curl("/gpu/metrics", *options)
        assert code != 0
        assert status == "000"
