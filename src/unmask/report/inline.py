"""What pages of one file share: styles and scripts read from a package, and data that scripts can read.

The data cannot end the element it stands in, and scripts other than those written here are refused by the page itself.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup


def embedded(value: Any) -> Markup:
    """JSON that may stand inside a script element: no `<` is left in it."""
    return Markup(json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))


def script_hash(script: str) -> str:
    """The name under which a page's security policy allows a script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def joined(package: str, folder: str, names: Iterable[str]) -> str:
    """The files of a folder of a package's assets, one after the other; the folder is also their suffix."""
    return _joined(package, folder, tuple(names))


@lru_cache
def _joined(package: str, folder: str, names: tuple[str, ...]) -> str:
    place = files(package) / "assets" / folder
    return "\n".join((place / f"{name}.{folder}").read_text(encoding="utf-8").strip() for name in names)
