"""Slots are what the environment, nvidia-smi or the user says, in this order."""

import sys

import pytest

from unmask.errors import UnmaskError
from unmask.launch import slots
from unmask.launch.slots import find_slots, installed_devices, read_devices, visible_devices

LISTING = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-aaaa)
  MIG 3g.40gb     Device  0: (UUID: MIG-1111)
  MIG 3g.40gb     Device  1: (UUID: MIG-2222)
GPU 1: NVIDIA RTX A6000 (UUID: GPU-bbbb)
"""


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "installed_devices", list)


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("0,1", ["0", "1"]),
        ("3", ["3"]),
        (" 2 , 0 ", ["2", "0"]),
        ("GPU-aaaa,MIG-1111", ["GPU-aaaa", "MIG-1111"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,-1,0", ["1"]),
    ],
)
def test_visible_devices_are_kept_as_they_are(text: str, devices: list[str]) -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": text}) == devices


def test_each_visible_device_is_a_slot() -> None:
    found = find_slots(environment={"CUDA_VISIBLE_DEVICES": "MIG-1111,4"})
    assert [slot.environment for slot in found] == [
        {"CUDA_VISIBLE_DEVICES": "MIG-1111"},
        {"CUDA_VISIBLE_DEVICES": "4"},
    ]
    assert [slot.name for slot in found] == ["gpu 0", "gpu 4"]


def test_more_slots_than_gpus_share_them_and_fewer_leave_some_alone() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "5,6"}
    three = find_slots(3, environment)
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in three] == ["5", "6", "5"]
    assert [slot.name for slot in three] == ["gpu 5", "gpu 6", "gpu 5 (2)"]
    assert [slot.name for slot in find_slots(1, environment)] == ["gpu 5"]


def test_without_the_variable_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "installed_devices", lambda: ["GPU-bbbb"])
    assert [slot.environment for slot in find_slots(environment={})] == [{"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}]
    hidden = find_slots(environment={"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "3"})
    assert [slot.environment for slot in hidden] == [{}]


def test_a_divided_gpu_is_its_parts() -> None:
    assert read_devices(LISTING) == ["MIG-1111", "MIG-2222", "GPU-bbbb"]
    assert read_devices("No devices were found\n") == []


def test_a_driver_that_is_missing_broken_or_silent_means_no_gpu() -> None:
    print_it = f"print({LISTING!r})"
    assert installed_devices([sys.executable, "-c", print_it]) == ["MIG-1111", "MIG-2222", "GPU-bbbb"]
    assert installed_devices(["no-such-program"]) == []
    assert installed_devices([sys.executable, "-c", print_it + "; raise SystemExit(9)"]) == []
    assert installed_devices([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.2) == []


def test_cpu_slots_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "cores", lambda: 8)
    assert [slot.environment for slot in find_slots(environment={})] == [{"OMP_NUM_THREADS": "8"}]
    assert {slot.environment["OMP_NUM_THREADS"] for slot in find_slots(3, {})} == {"2"}
    assert find_slots(20, {})[19].environment == {"OMP_NUM_THREADS": "1"}


def test_threads_set_by_the_user_stay() -> None:
    assert find_slots(2, {"OMP_NUM_THREADS": "5"})[0].environment == {}


@pytest.mark.parametrize("count", [0, -1, 1025, 31018258444745])
def test_a_number_of_slots_that_no_machine_has_is_refused(count: int) -> None:
    with pytest.raises(UnmaskError, match=f"between 1 and 1024, not {count}"):
        find_slots(count, environment={})
