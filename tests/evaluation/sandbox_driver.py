"""Runs one program for a test, in this process or, as a script, in that of another user with another Python."""

import ctypes
import dataclasses
import json
import os
import sys
from typing import Any

SECRET = ctypes.create_string_buffer(b"a token in the memory of the caller")
ANY_PROCESS, PR_SET_PTRACER = ctypes.c_ulong(-1), 0x59616D61


def run(source: str, weaken: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The outcome of a program that may name the caller (PARENT, ADDRESS), in a sandbox with changed constants."""
    from unmask.evaluation import sandbox

    ctypes.CDLL(None).prctl(
        PR_SET_PTRACER, ANY_PROCESS, 0, 0, 0
    )  # so that no setting of the system forbids it
    source = source.replace("PARENT", str(os.getpid())).replace("ADDRESS", str(ctypes.addressof(SECRET)))
    kept = {name: getattr(sandbox, name) for name in weaken}
    try:
        for name, value in weaken.items():
            setattr(sandbox, name, value)
        sandbox._bwrap.cache_clear()
        return dataclasses.asdict(sandbox.run_program(source, **options))
    finally:
        for name, value in kept.items():
            setattr(sandbox, name, value)
        sandbox._bwrap.cache_clear()


if __name__ == "__main__":
    given = json.load(sys.stdin)
    outcome = run(given["source"], given["weaken"], **given["options"])
    heavy = sorted({"torch", "numpy", "lm_eval", "click", "msgspec"} & set(sys.modules))
    json.dump(outcome | {"uid": os.getuid(), "heavy": heavy}, sys.stdout)
