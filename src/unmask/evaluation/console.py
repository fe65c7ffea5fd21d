"""`unmask-lm-eval`: lm-eval's own command line with the model `unmask` registered, so that all its flags work.

    unmask-lm-eval --model unmask --model_args pretrained=path/to/checkpoint --tasks gsm8k --limit 20

Beside lm-eval's tasks it knows this package's (embedded tasks and boxed variants). UNMASK_DATA names a folder
of local data, as --data of `unmask eval` does. An --include_path of your own takes the place of both.
Programs that a model writes run in bubblewrap, once lm-eval's --confirm_run_unsafe_code allows it. Where that does not
work, --allow-unsafe-code (the one flag that is not lm-eval's) lets them run without isolation.
"""

import os
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import EMBEDDED_TASKS, sources
from unmask.evaluation.code_eval import sandboxed_metric
from unmask.evaluation.sandbox import SandboxName
from unmask.evaluation.task_files import known_names, local_files, write_definitions

MODEL = "unmask"
DATA = "UNMASK_DATA"
UNSAFE_FLAG = "--allow-unsafe-code"


def main() -> None:
    """Run lm-eval's command line and leave with its exit code."""
    try:
        _main()
    except UnmaskError as error:
        print(f"Error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


def _main() -> None:
    # The built-in models are registered first: lm-eval does so only while its registry is empty.
    import lm_eval.models  # noqa: F401
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.api.registry import model_registry

    from unmask.evaluation.harness import compiled_once

    model_registry.register(MODEL, target="unmask.evaluation.lm:UnmaskLM")
    allow_unsafe = UNSAFE_FLAG in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != UNSAFE_FLAG]
    with tempfile.TemporaryDirectory(prefix="unmask-tasks-") as name:
        if _evaluates(sys.argv):
            write_tasks(Path(name), os.environ.get(DATA))
            sys.argv += ["--include_path", name]
        with _sandbox(sys.argv, allow_unsafe), compiled_once():
            cli_evaluate()


def _evaluates(arguments: list[str]) -> bool:
    """Whether tasks are going to be looked up by lm-eval's own folder alone."""
    named = {argument.split("=")[0] for argument in arguments}
    wanted = bool(named & {"--tasks", "-t"}) and "--include_path" not in named
    return wanted and arguments[1:2] not in (["ls"], ["validate"])


def _sandbox(arguments: list[str], allow_unsafe: bool) -> AbstractContextManager[None]:
    """The sandbox for tasks that run code; help and lists load no task and need not wait for its imports."""
    loads_none = arguments[1:2] == ["ls"] or {"-h", "--help"} & set(arguments)
    return nullcontext() if loads_none else sandboxed_metric(allow_unsafe, _note)


def _note(sandbox: SandboxName) -> None:
    """Results of lm-eval's command line hold what the model says of itself, so the model is told."""
    from unmask.evaluation.lm import UnmaskLM

    UnmaskLM.sandbox = sandbox
    if sandbox == "unsafe":
        print("Warning: The programs that the model writes run without isolation.", file=sys.stderr)


def write_tasks(folder: Path, data: str | None) -> None:
    """Write this package's tasks, and lm-eval's where their local files are there."""
    place = Path(data) if data else None
    for file in EMBEDDED_TASKS.iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file.resolve())
    own = [name for name in known_names() if "_boxed" in name]
    if place is None:
        write_definitions(own, folder, None)
        return
    for name, source in sources().items():
        try:
            if source.stock and local_files(source, place):
                write_definitions([name], folder, place)
        except UnmaskError:
            continue
