"""Classes that a user wrote: what identifies their code, how they are made, and what an error of theirs says.

Their code is part of a run's identity, as the weights are. Code of one's own is known by the hash of its source file,
or of all modules of a package that the class is taken from, so that an edit makes a new run. Code of an installed
package is known by the package's version. Other modules that are imported in turn are not looked at.
"""

import hashlib
import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points, packages_distributions, version
from itertools import accumulate
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from typing import Any, NoReturn

from unmask.errors import UnmaskError
from unmask.reading import read_plain

INSTALLED = {"site-packages", "dist-packages"}
PACKAGE = Path(__file__).parents[1]
LONGEST_REASON = 300
LEAVE = os._exit
TARGET = re.compile(r"[A-Za-z_][\w-]{0,99}(\.[A-Za-z_][\w-]{0,99}){0,9}(:[A-Za-z_]\w{0,99})?", re.ASCII)
"""What may be the place of a class: `package.module:Class`, or the name of an entry point."""


@dataclass(frozen=True, slots=True)
class OwnKind:
    """What a class is to be."""

    noun: str
    entry_points: str
    """The group of entry points under which installed packages name such classes."""
    method: str
    """What is called, always with a view."""


POLICY = OwnKind("policy", "unmask.policies", "plan")
RULE = OwnKind("rule", "unmask.rules", "choose")


def own_code(target: str, kind: OwnKind = POLICY) -> str:
    """The code behind `package.module:Class` or the name of an entry point, in a few words."""
    module = target.partition(":")[0] if ":" in target else _installed(target, kind).module
    source = _source_of(module, target, kind)
    if not INSTALLED.isdisjoint(source.parts):
        for distribution in packages_distributions().get(module.partition(".")[0], ()):
            return f"{distribution} {version(distribution)}"
    return f"sha256:{_hash_of(source)}"


def _hash_of(source: Path) -> str:
    """The hash of a module, or of all modules of a package: it often only names a class that stands in one of them."""
    if source.name != "__init__.py":
        return hashlib.sha256(read_plain(source)).hexdigest()
    total = hashlib.sha256()
    for file in sorted(source.parent.rglob("*.py")):
        content = hashlib.sha256(read_plain(file)).hexdigest()
        total.update(f"{file.relative_to(source.parent).as_posix()} {content}\n".encode())
    return total.hexdigest()


def made_of(target: str, options: Mapping[str, Any], kind: OwnKind) -> Any:
    """Import a class and make an object of it."""
    own_class = _imported(target, kind)
    # Anything else that can be called might do something at once, and a recipe may come from anybody.
    if not isinstance(own_class, type) or not callable(getattr(own_class, kind.method, None)):
        raise UnmaskError(f"{target} is no {kind.noun}: it is no class with a method {kind.method}(view).")
    with guarded(target, kind):
        try:
            return own_class(**options)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise
            raise UnmaskError(f"The {kind.noun} {target} cannot be made with its options: {error}.") from None


@contextmanager
def guarded(target: str, kind: OwnKind) -> Iterator[None]:
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
            f"The {kind.noun} {target} failed{_place(error)} ({_reason(error)}); mend it."
        ) from error
    finally:
        os._exit = LEAVE


def _imported(target: str, kind: OwnKind) -> Any:
    module_name, _, attribute = target.partition(":")
    with guarded(target, kind):
        try:
            if not attribute:
                return _installed(target, kind).load()
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise UnmaskError(f"The {kind.noun} {target} cannot be imported: {error}.") from None
    if not hasattr(module, attribute):
        raise UnmaskError(f"The {kind.noun} {target} cannot be imported: {module_name} has no {attribute}.")
    return getattr(module, attribute)


def _installed(name: str, kind: OwnKind) -> EntryPoint:
    """The entry point that an installed package gives this name."""
    named = entry_points(group=kind.entry_points, name=name)
    if not named:
        raise UnmaskError(
            f"No installed {kind.noun} is called {name!r}; install its package or write package.module:Class."
        )
    return next(iter(named))


def _source_of(module: str, target: str, kind: OwnKind) -> Path:
    spec = _spec_of(module)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise _missing(target, kind, f"there is no module {module}")
    return Path(spec.origin)


def _spec_of(module: str) -> ModuleSpec | None:
    """Where a module lies; unlike importlib's own search this runs no code of the packages around it."""
    spec: ModuleSpec | None = None
    for name in accumulate(module.split("."), "{}.{}".format):
        places = spec.submodule_search_locations if spec else None
        if spec and places is None:
            return None
        specs = (finder.find_spec(name, places) for finder in sys.meta_path)
        spec = next((each for each in specs if each is not None), None)
        if spec is None:
            return None
    return spec


def _missing(target: str, kind: OwnKind, reason: str) -> UnmaskError:
    return UnmaskError(
        f"The code of the {kind.noun} {target} cannot be found ({reason}), and a run's identity depends on it; put its "
        "folder on PYTHONPATH."
    )


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
    kind = type(error).__name__
    try:
        return " ".join(f"{kind}: {error}".split())[:LONGEST_REASON]
    except Exception:  # an exception of the user's own may fail where it is to say what it is
        return kind
