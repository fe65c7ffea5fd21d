"""Started in place of `python -m unmask run-one FOLDER`: gives an invented result, or fails, or waits.

Which configurations fail, wait or answer otherwise is told through the environment.
"""

import os
import sys
import time
from pathlib import Path

from planted import result_of

from unmask.store import RunFolder


def named(variable: str, configuration: str) -> bool:
    return configuration in os.environ.get(variable, "").split(",")


def main() -> int:
    run = RunFolder(Path(sys.argv[1]))
    configuration = run.worker.configuration
    attempt = run.new_attempt()
    attempt.log.write_text(f"working on {configuration}\n")
    if named("PLANTED_WAIT", configuration):
        time.sleep(60)
    if named("PLANTED_FAIL", configuration):
        attempt.fail("The disk is full.")
        return 2
    digest = "otherwise" if named("PLANTED_OTHERWISE", configuration) else ""
    run.publish(result_of(run, configuration, digest=digest))
    return 0


if __name__ == "__main__":
    sys.exit(main())
