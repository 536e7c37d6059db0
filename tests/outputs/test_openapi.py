"""/openapi.json, held to the description that people read.

`pytest tests/outputs/test_openapi.py --update-golden` writes it anew.
"""

import json

import pytest
import yaml

from tests.support.exporter import Start
from tests.support.places import ROOT

SERVED = ROOT / "exporter" / "outputs" / "openapi.json"


async def test_it_is_the_description_in_docs(start: Start, request: pytest.FixtureRequest) -> None:
    described = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text())
    if request.config.getoption("--update-golden"):
        SERVED.write_text(json.dumps(described, indent=1) + "\n")
        return  # what is served was read when the program started
    exporter = await start(kubelet_socket="/no/such/kubelet.sock", dcgm_url="http://127.0.0.1:1/metrics")
    async with exporter.session.get(f"{exporter.base}/openapi.json") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"
        assert json.loads(await response.read()) == described
