"""GPUs of a simulated node that the DRA driver cuts into MIG instances for each claim, as NVIDIA's driver does it."""

from pathlib import Path

from exporter.config.strict_yaml import load_plain
from exporter.ownership.inventories import read_mig_minors, read_spec
from exporter.simulator import driver_files
from exporter.simulator.kubernetes import SimulatedApi
from exporter.simulator.parts import PROFILES
from tests.support.simulated import World


def held_slices(world: World) -> list[int]:
    gpu = world.gpus[0]
    return sorted(part for name in world.held() for part in gpu.placements[name][1])


# issue 18, line 3
def test_instances_come_and_go_with_their_claims_and_ids_come_again(tmp_path: Path) -> None:
    world = World(gpus=1, claims=1, dynamic=1, seed=5, clock=lambda: 0)
    profiles, uuids, ids, was_whole = set(), set(), [], False
    for number in range(100):
        if not number % 5:
            world.pods = ()
        world.step()
        gpu = world.gpus[0]
        slices = held_slices(world)
        assert len(slices) == len(set(slices)) <= gpu.card.memory_slices
        claims = {claim.cdi_names[0]: claim.device for pod in world.pods for claim in pod.containers[0].claims}
        was_whole |= gpu.claim_device in claims.values()
        assert {mig.cdi_name: mig.claim_device for mig in gpu.instances} == {
            name: device for name, device in claims.items() if device != gpu.claim_device
        }
        now = [mig.instance_id for mig in gpu.instances]
        assert len(now) == len(set(now))
        profiles |= {mig.profile for mig in gpu.instances}
        ids += [mig.instance_id for mig in gpu.instances if mig.device_id not in uuids]
        uuids |= {mig.device_id for mig in gpu.instances}
        # the spec of a claim leads to the instance that was cut for it
        driver_files.write_claims(tmp_path, world.listed, world.gpus)
        files = [*(tmp_path / "var/run/cdi").glob("*.yaml")]
        devices = [device for path in files for device in read_spec(load_plain(path.read_text()))]
        places = read_mig_minors(driver_files.mig_minors(), {cap for device in devices for cap in device.caps})
        assert {device.name: {places[cap] for cap in device.caps} for device in devices} == {
            name: {(0, mig.instance_id) for mig in gpu.instances if mig.cdi_name == name} for name in claims
        }
    assert was_whole
    assert profiles == {"1g.10gb", "2g.20gb", "3g.40gb"}
    assert len(ids) == len(uuids) > len(set(ids)), "an id that is free is given again"


def test_slices_offer_what_may_be_cut_without_a_uuid() -> None:
    world = World(gpus=2, claims=2, dynamic=1, seed=5, clock=lambda: 0)
    slices = SimulatedApi(world).slices_now()
    devices = {device["name"]: device for item in slices for device in item["spec"]["devices"]}
    assert {name: "uuid" in device["attributes"] for name, device in devices.items()} == {
        **dict.fromkeys(("gpu-0", "gpu-1"), True),
        # numbers and starts as nvidia-smi mig -lgip and -lgipp have them
        **dict.fromkeys([f"gpu-1-mig-1g10gb-19-{start}" for start in range(7)], False),
        **dict.fromkeys([f"gpu-1-mig-2g20gb-14-{start}" for start in (0, 2, 4)], False),
        **dict.fromkeys([f"gpu-1-mig-3g40gb-9-{start}" for start in (0, 4)], False),
    }
    assert sum(bool(profile.number) for profile in PROFILES.values()) == 3
