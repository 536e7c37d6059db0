"""`demo --dra on`, as a user starts it: claims with specs, and instances that are cut for claims."""

import json
import re
import urllib.request

from tests.support.demo import demo
from tests.support.waiting import wait_until


def answer(url: str, path: str) -> str:
    with urllib.request.urlopen(f"{url}{path}", timeout=30) as response:
        text: str = response.read().decode()
        return text


def devices(url: str) -> set[str]:
    """The names that the driver gave what is held by claims, of which the page has samples with their pods."""
    return set(re.findall(r'pod="[^"]+",.*dra_device_name="([^"]+)"', answer(url, "/gpu/metrics")))


def forms(url: str) -> set[str]:
    """How the ids of claims' devices are read."""
    return {row["form"] for row in json.loads(answer(url, "/debug/mapping"))["assigned"] if row["claim"]}


# issue 18, line 1
def test_the_demo_cuts_a_gpu_for_each_claim_and_asks_no_api() -> None:
    with demo("--claims=3", "--collect-interval=0", "--speed=1000", "--seed=1") as url:
        wait_until(lambda: any("-mig-" in name for name in devices(url)))
        seen = devices(url)
        wait_until(lambda: {name for name in devices(url) if "-mig-" in name} - seen, why=lambda: seen)
        # a claim that came a moment ago may not have been read yet
        wait_until(lambda: forms(url) == {"CDI spec"}, why=lambda: forms(url))
        assert "resourceslices" not in json.loads(answer(url, "/debug/mapping"))["sources"]


def test_the_demo_with_claims_on_has_some() -> None:
    with demo("--dra=on", "--collect-interval=0") as url:
        wait_until(lambda: any("-mig-" in name for name in devices(url)))
        assert "resourceslices" in json.loads(answer(url, "/debug/mapping"))["sources"]
