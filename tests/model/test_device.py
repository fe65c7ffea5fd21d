"""The device and dtype that users expect, and sentences for those that are not there."""

from typing import Any

import pytest
import torch

from unmask.errors import UnmaskError
from unmask.model.device import choose_device, choose_dtype, free_bytes, upload


@pytest.mark.parametrize(
    "capability, expected",
    [
        ((9, 0), torch.bfloat16),
        ((8, 0), torch.bfloat16),
        ((7, 5), torch.float16),
        ((7, 0), torch.float16),
        ((6, 1), torch.float32),
    ],
)
def test_the_dtype_suits_the_card(
    capability: tuple[int, int], expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert choose_dtype(None, torch.device("cuda")) == expected


def test_the_dtype_of_other_devices_and_given_ones() -> None:
    assert choose_dtype(None, torch.device("cpu")) == torch.float32
    assert choose_dtype("bfloat16", torch.device("cpu")) == torch.bfloat16
    assert choose_dtype(torch.float16, torch.device("cpu")) == torch.float16


def test_an_unknown_dtype_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnmaskError, match="float32, float16, bfloat16"):
        choose_dtype("int4", torch.device("cpu"))


@pytest.mark.parametrize(
    "present, expected", [((True, True), "cuda"), ((False, True), "mps"), ((False, False), "cpu")]
)
def test_the_best_device_is_taken(
    present: tuple[bool, bool], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present[0])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: present[1])
    assert choose_device().type == expected


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UnmaskError, match="No CUDA device"):
        choose_device("cuda")
    with pytest.raises(UnmaskError, match="mps is not available"):
        choose_device("mps")
    with pytest.raises(UnmaskError, match="'toaster' is no device"):
        choose_device("toaster")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UnmaskError, match="no cuda:2: this machine has 2"):
        choose_device("cuda:2")


def test_free_memory_is_known_for_the_cpu_only_where_it_can_be() -> None:
    free = free_bytes(torch.device("cpu"))
    assert free is not None
    assert free > 0
    assert free_bytes(torch.device("meta")) is None


@pytest.mark.parametrize("kind, pinned", [("cpu", False), ("mps", False), ("cuda", True)])
def test_numbers_go_to_a_cuda_device_from_pinned_memory_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch, kind: str, pinned: bool
) -> None:
    asked: list[Any] = []

    class Host:
        def to(self, device: torch.device, non_blocking: bool) -> str:
            asked.append((device.type, non_blocking))
            return "there"

    def tensor(numbers: list[int], pin_memory: bool) -> Host:
        asked.append((numbers, pin_memory))
        return Host()

    monkeypatch.setattr(torch, "tensor", tensor)
    sent: Any = upload([3, 4], torch.device(kind))
    assert sent == "there"
    assert asked == [([3, 4], pinned), (kind, True)]
