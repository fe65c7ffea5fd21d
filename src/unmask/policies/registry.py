"""From a policy spec to a policy: the one place that knows which class belongs to which spec."""

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from typing import Any, NoReturn

from unmask.engine.policy import Full, Policy, StepView
from unmask.engine.step_plan import StepPlan
from unmask.errors import UnmaskError
from unmask.policies.adaptive import Adaptive
from unmask.policies.combine import Combine
from unmask.policies.layer_reuse import LayerReuse
from unmask.policies.trim import Trim
from unmask.spec import (
    AdaptiveSpec,
    AnyPolicySpec,
    CombineSpec,
    CustomSpec,
    FullSpec,
    LayerReuseSpec,
    PolicySpec,
    TrimSpec,
    build,
)
from unmask.spec.own_code import INSTALLED, installed_policy

PACKAGE = Path(__file__).parents[1]
LONGEST_REASON = 300
LEAVE = os._exit
MAKERS: dict[type[PolicySpec], Callable[[Any, int], Policy]] = {
    FullSpec: lambda spec, layers: Full(),  # noqa: ARG005 (the makers' signature)
    LayerReuseSpec: LayerReuse.of,
    TrimSpec: Trim.of,
    AdaptiveSpec: Adaptive.of,
    CombineSpec: lambda spec, layers: Combine.of(spec, _made(spec.rows, layers), _made(spec.layers, layers)),
    CustomSpec: lambda spec, layers: _custom(spec),  # noqa: ARG005
}


def policy_spec(values: AnyPolicySpec | Mapping[str, Any]) -> AnyPolicySpec:
    """Validate a mapping such as {"kind": "layer_reuse", "k": 2}; a spec passes through."""
    if isinstance(values, PolicySpec):
        return values
    return build(AnyPolicySpec, dict(values), "Policy")  # type: ignore[arg-type]


def make_policy(policy: Policy | AnyPolicySpec | Mapping[str, Any] | None, layers: int) -> Policy:
    """Bind a spec to a model's depth; a ready policy passes through, None is the baseline."""
    if policy is None:
        return Full()
    if isinstance(policy, PolicySpec | Mapping):
        made: Policy = _made(policy_spec(policy), layers)
        return made
    if not _plans(policy):
        raise UnmaskError(
            f"{policy!r} is no policy; give a spec such as {{'kind': 'layer_reuse', 'k': 2}}, or an object with "
            "a method plan(view)."
        )
    return policy


def _made(spec: PolicySpec, layers: int) -> Any:
    return MAKERS[type(spec)](spec, layers)


class OwnPolicy:
    """A policy of the user's own code: where that fails, the error names its file and line."""

    def __init__(self, target: str, policy: Policy) -> None:
        self._target = target
        self._policy = policy

    def plan(self, view: StepView) -> StepPlan:
        """Ask the policy."""
        with _own_code(self._target):
            return self._policy.plan(view)


def _custom(spec: CustomSpec) -> Policy:
    policy_class = _find(spec.target)
    # Anything else that can be called might do something at once, and a recipe may come from anybody.
    if not isinstance(policy_class, type) or not callable(getattr(policy_class, "plan", None)):
        raise UnmaskError(f"{spec.target} is no policy: it is no class with a method plan(view).")
    with _own_code(spec.target):
        try:
            return OwnPolicy(spec.target, policy_class(**spec.options))
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise
            raise UnmaskError(f"The policy {spec.target} cannot be made with its options: {error}.") from None


def _find(target: str) -> Any:
    module_name, _, attribute = target.partition(":")
    with _own_code(target):
        try:
            if not attribute:
                return installed_policy(target).load()
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise UnmaskError(f"The policy {target} cannot be imported: {error}.") from None
    if not hasattr(module, attribute):
        raise UnmaskError(f"The policy {target} cannot be imported: {module_name} has no {attribute}.")
    return getattr(module, attribute)


@contextmanager
def _own_code(target: str) -> Iterator[None]:
    """One sentence for whatever the user's code does instead of what it should, an attempt to end the process too."""
    process = os.getpid()

    def refuse(code: int) -> NoReturn:
        if os.getpid() != process:  # a process that the code has forked may end as it likes
            LEAVE(code)
        raise SystemExit(code)

    os._exit = refuse  # type: ignore[assignment]
    try:
        yield
    except (UnmaskError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UnmaskError(
            f"The policy {target} failed{_place(error)} ({_reason(error)}); mend it."
        ) from error
    finally:
        os._exit = LEAVE


def _place(error: BaseException) -> str:
    """The line of the user's file that an error comes from."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" in {error.filename}, line {error.lineno}"
    frames = [frame for frame in extract_tb(error.__traceback__) if Path(frame.filename).is_file()]
    outside = [frame for frame in frames if PACKAGE not in Path(frame.filename).parents]
    own = [frame for frame in outside if _is_own(Path(frame.filename))]
    chosen = (own or outside)[-1:]
    return "".join(f" in {frame.filename}, line {frame.lineno}" for frame in chosen)


def _is_own(file: Path) -> bool:
    return INSTALLED.isdisjoint(file.parts) and not file.is_relative_to(get_path("stdlib"))


def _reason(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "it tried to end the process"
    return " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_REASON]


def _plans(policy: object) -> bool:
    return callable(getattr(policy, "plan", None)) and not isinstance(policy, type)
