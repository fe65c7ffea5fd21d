"""A device that does not exist: its tensors hold CPU memory, and everything that happens on it is seen at one place.

It shows on any machine what a GPU would be asked to do: operations that mix devices fail, and launches, uploads,
synchronisations and memory are counted. It says nothing about speed. A process can make one such device and keeps it to
its end, so tests use it in a process of their own (`UNMASK_TEST_DEVICE=pretended`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretended"
_setup_privateuseone_for_python_backend(NAME)
DEVICE = torch.device(NAME, 0)
CPU = torch.device("cpu")

WAITING = {"_local_scalar_dense", "equal", "nonzero", "masked_select"}
"""Operations whose result the host waits for."""
COPIES = {"_to_copy", "to", "copy_"}
WITHOUT_LAUNCH = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}


class OnDevice(torch.Tensor):
    """A tensor that claims to lie on the device."""

    held: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def around(held: torch.Tensor) -> "OnDevice":
        """What the device shows of `held`."""
        shape = torch.empty_strided(held.shape, held.stride(), dtype=held.dtype, device="meta")
        made = torch.Tensor._make_subclass(
            OnDevice, shape, dispatch_device=True, device_for_backend_keys=DEVICE
        )
        made.held = held
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return DEVICE

    def tolist(self) -> list[Any]:
        """The values, copied to the host as on any device; torch itself refuses this to subclasses."""
        return self.to(CPU).tolist()

    @classmethod
    def __torch_dispatch__(
        cls, operation: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        raise AssertionError(f"{operation} ran while nobody watched the device")


class Watch(TorchDispatchMode):
    """Runs what is asked of the device on the memory that its tensors hold, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: Counter[str] = Counter()
        """Operations that compute or move something on the device, by name."""
        self.casts = 0
        """Copies on the device that change the dtype; in fp32 there should be none."""
        self.uploads = self.synchronisations = 0
        self._tensors: WeakSet[OnDevice] = WeakSet()

    def counts(self) -> tuple[int, int, int, int]:
        """Launches, casts, uploads and synchronisations up to now."""
        return self.launches.total(), self.casts, self.uploads, self.synchronisations

    def live_bytes(self) -> int:
        """Memory that tensors of the device hold now."""
        storages = [each.held.untyped_storage() for each in self._tensors]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = _flat([*args, *(kwargs or {}).values()])
        inside = [each for each in given if isinstance(each, OnDevice)]
        to_device = any(isinstance(each, torch.device) and each.type == NAME for each in given)
        if not inside and not to_device:
            return operation(*args, **(kwargs or {}))
        name = operation.overloadpacket.__name__
        if name == "device":
            return DEVICE
        outside = [
            each for each in given if isinstance(each, torch.Tensor) and not isinstance(each, OnDevice)
        ]
        if inside and name not in COPIES and any(each.dim() for each in outside):
            raise AssertionError(f"{operation} got tensors of the device and of the host")
        real_args, real_kwargs = tree_map(_real, (tuple(args), dict(kwargs or {})))
        result = operation(*real_args, **real_kwargs)
        to_host = any(each == CPU for each in given if isinstance(each, torch.device)) or (
            name == "copy_" and not isinstance(args[0], OnDevice)
        )
        if to_host or name in WAITING:
            self.synchronisations += 1
        elif name in COPIES and (outside or to_device):
            self.uploads += 1
        elif not _is_view(operation) and name not in WITHOUT_LAUNCH:
            self._count(name, inside, result)
        if to_host:
            return args[0] if name == "copy_" else result
        wrappers = {id(each.held): each for each in inside}
        return tree_map(lambda each: self._shown(each, wrappers), result)

    def _count(self, name: str, inside: Sequence[OnDevice], result: Any) -> None:
        if name in COPIES and len({each.dtype for each in inside}) + (result.dtype != inside[0].dtype) > 1:
            self.casts += 1
        elif name != "to":  # a `to` that changes nothing
            self.launches[name] += 1

    def _shown(self, each: Any, wrappers: Mapping[int, OnDevice]) -> Any:
        if not isinstance(each, torch.Tensor):
            return each
        if id(each) not in wrappers:
            wrapper = OnDevice.around(each)
            self._tensors.add(wrapper)
            return wrapper
        return wrappers[id(each)]


WATCH = Watch()
"""The one watch of the process; whoever imports this module first enters it."""


def _flat(values: Sequence[Any]) -> list[Any]:
    flat = []
    for each in values:
        if isinstance(each, (list, tuple)):
            flat += _flat(each)
        else:
            flat.append(each)
    return flat


def _real(each: Any) -> Any:
    if isinstance(each, OnDevice):
        return each.held
    return CPU if isinstance(each, torch.device) and each.type == NAME else each


def _is_view(operation: Any) -> bool:
    aliases = [each.alias_info for each in operation._schema.returns]
    return (
        any(alias is not None and not alias.is_write for alias in aliases)
        and operation._schema.name != "aten::to"
    )
