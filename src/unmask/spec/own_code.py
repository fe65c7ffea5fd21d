"""What identifies the code of a class that a user wrote: it is part of a run's identity, as the weights are.

Code of one's own is known by the hash of its source file, so that an edit makes a new run. Code of an installed
package is known by the package's version. Modules that the file imports in turn are not looked at.
"""

import hashlib
import importlib.util
from importlib.metadata import EntryPoint, entry_points, packages_distributions, version
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.reading import read_plain

ENTRY_POINTS = "unmask.policies"
INSTALLED = {"site-packages", "dist-packages"}


def own_code(target: str) -> str:
    """The code behind `package.module:Class` or the name of an entry point, in a few words."""
    module = _module_of(target)
    source = _source_of(module, target)
    if INSTALLED.isdisjoint(source.parts):
        return f"sha256:{hashlib.sha256(read_plain(source)).hexdigest()}"
    (distribution, *_) = packages_distributions()[module.partition(".")[0]]
    return f"{distribution} {version(distribution)}"


def _module_of(target: str) -> str:
    return target.partition(":")[0] if ":" in target else installed_policy(target).module


def installed_policy(name: str) -> EntryPoint:
    """The entry point that an installed package gives this name."""
    named = entry_points(group=ENTRY_POINTS, name=name)
    if not named:
        raise UnmaskError(
            f"No installed policy is called {name!r}; install its package or write package.module:Class."
        )
    return next(iter(named))


def _source_of(module: str, target: str) -> Path:
    try:
        origin = importlib.util.find_spec(module)
    except Exception as error:  # the packages around the module are imported, and may fail with anything
        raise _missing(target, str(error) or type(error).__name__) from None
    if origin is None or origin.origin is None or not Path(origin.origin).is_file():
        raise _missing(target, f"there is no module {module}")
    return Path(origin.origin)


def _missing(target: str, reason: str) -> UnmaskError:
    return UnmaskError(
        f"The code of the policy {target} cannot be found ({reason}), and a run's identity depends on it; put its "
        "folder on PYTHONPATH."
    )
