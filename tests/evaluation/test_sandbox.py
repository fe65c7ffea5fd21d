"""Programs that cheat, hang, multiply, hoard, spy and destroy, run by root and by an ordinary user.

Every promise has a control: the same program succeeds in a weakened sandbox, so that its test can fail.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sandbox_driver as driver
import sandbox_programs as programs

from unmask.errors import UnmaskError
from unmask.evaluation import sandbox
from unmask.evaluation.sandbox import bubblewrap_problem, choose_sandbox, run_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is Linux's")
REQUIRED = "UNMASK_REQUIRE_BWRAP"
SYSTEM_PYTHON = Path("/usr/bin/python3")
NOBODY = 65534
Run = Callable[..., dict[str, Any]]


def unless_required(reason: str) -> None:
    if os.environ.get(REQUIRED):
        pytest.fail(f"{reason}, and {REQUIRED} is set")
    pytest.skip(reason)


@pytest.fixture(scope="module", autouse=True)
def bubblewrap() -> None:
    if problem := bubblewrap_problem():
        unless_required(problem)


@pytest.fixture(scope="module")
def ordinary() -> Iterator[Path]:
    """A folder with what an ordinary user needs: an environment of the system's Python, the module, a home."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="unmask-ordinary-"))
    folder.chmod(0o755)
    subprocess.run([SYSTEM_PYTHON, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    source = Path(sandbox.__file__).parents[1]
    for name in ("__init__.py", "version.py", "errors.py", "evaluation/__init__.py", "evaluation/sandbox.py"):
        (folder / "unmask" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, folder / "unmask" / name)
    shutil.copy(driver.__file__, folder / "driver.py")
    (folder / "home").mkdir()
    os.chown(folder / "home", NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def start_as_ordinary_user(folder: Path, source: str, weaken: Any, options: Any) -> "subprocess.Popen[str]":
    become = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    process = subprocess.Popen(
        [*become, str(folder / "venv/bin/python"), str(folder / "driver.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "HF_TOKEN": "hf_secret"},
        cwd="/",
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"source": source, "weaken": weaken, "options": options}))
    process.stdin.close()
    process.stdin = None
    return process


@pytest.fixture(params=["this user", "ordinary user"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a program as the user of the tests (root, in CI) and as an ordinary one."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    if request.param == "ordinary user":
        if os.getuid() != 0:
            pytest.skip("this user is an ordinary one already")
        if not SYSTEM_PYTHON.exists():
            unless_required("there is no Python of the system")
        folder = request.getfixturevalue("ordinary")

    def run_one(source: str, weaken: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        options = {"timeout": 20, **options}
        if request.param == "this user":
            return driver.run(source, weaken or {}, **options)
        with start_as_ordinary_user(folder, source, weaken or {}, options) as process:
            outcome: dict[str, Any] = json.loads(process.communicate()[0])
        assert outcome.pop("uid") == NOBODY
        assert outcome.pop("heavy") == []
        return outcome

    return run_one


def fails_only_when_isolated(run: Run, source: str, **weaken: Any) -> str:
    """Run the program in a weakened sandbox, where it must succeed, and in the whole one, where it must not."""
    control = run(source, weaken) if weaken else run(source, sandbox="unsafe")
    assert control["passed"], control
    reason: str = run(source)["reason"]
    assert reason.startswith("failed: "), reason
    return reason


@pytest.mark.parametrize(
    "source, reason",
    [
        ("assert 1 + 1 == 2", "passed"),
        ("from __future__ import annotations\nimport hashlib, json, lzma, math, ssl", "passed"),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nassert P(1).x == 1", "passed"),
        ("import multiprocessing as m\nassert m.Pool(2).map(abs, [-1, 2]) == [1, 2]", "passed"),
        ("if __name__ == '__main__':\n    assert False", "passed"),
        ("import os; os.write = os.read = os._exit = os.getpid = None", "passed"),
        ("assert 1 + 1 == 3", "failed: AssertionError"),
        ("def f(:", "failed: SyntaxError"),
        ("x = '\ud800'; undefined", "failed: UnicodeEncodeError"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "failed: SIGSEGV"),
        ("import os; os._exit(1)", "failed: exited early"),
        ("input()", "failed: EOFError"),
        ("import os; assert os.pread(0, 1, 0)", "failed: AssertionError"),
        ("import os; assert os.getsid(0)", "passed"),  # 0 is a session that began outside
        ("import os; assert len(os.listdir('/dev')) > 5", "failed: AssertionError"),
        ("import os; os.mkdir('/new')", "failed: OSError"),
    ],
)
def test_verdict(run: Run, source: str, reason: str) -> None:
    outcome = run(source)
    assert (outcome["reason"], outcome["passed"]) == (reason, reason == "passed")


@pytest.mark.parametrize(
    "source, reason",
    [
        ("import sys; sys.exit(0)\nassert False", "failed: SystemExit"),
        ("import os; print('passed', flush=True); os._exit(0)", "failed: exited early"),
        ("import os\nif os.fork(): os._exit(0)", "failed: exited early"),
        (programs.GUESS, "failed: exited early"),
    ],
    ids=["sys.exit", "_exit", "forked copy", "guessed nonce"],
)
def test_success_cannot_be_faked(run: Run, source: str, reason: str) -> None:
    """Whoever trusts exit codes would believe these programs."""
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, check=False).returncode == 0
    outcome = run(source)
    assert (outcome["passed"], outcome["reason"]) == (False, reason)


def test_lines_beside_the_nonce_do_not_prove_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guess of `programs.GUESS` would be right if the nonce were not drawn anew for every program."""
    monkeypatch.setattr(sandbox.os, "urandom", bytes)
    assert run_program(programs.GUESS, timeout=20).passed


@pytest.fixture
def canaries(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Files that permissions do not protect, in the temporary folder or another: anyone may change or delete them."""
    folder = Path(tempfile.mkdtemp(dir=getattr(request, "param", "/tmp")))
    for name in ("delete", "overwrite", "read", "rename", "truncate"):
        (folder / name).write_text("alive")
        (folder / name).chmod(0o666)
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def test_files_in_the_temporary_folder(run: Run, canaries: Path) -> None:
    source = programs.HARM.format(folder=str(canaries))
    assert run(source)["stdout_tail"].split() == ["refused"] * 5
    assert [file.read_text() for file in canaries.iterdir()] == ["alive"] * 5
    assert fails_only_when_isolated(run, programs.READ.format(path=str(canaries / "read")))
    assert run(source, sandbox="unsafe")["stdout_tail"].split() == ["harmed"] * 5


def test_files_in_the_home(run: Run, request: pytest.FixtureRequest) -> None:
    other = "ordinary user" in request.node.name
    home = request.getfixturevalue("ordinary") / "home" if other else Path.home()
    secret = home / f".unmask-{uuid.uuid4().hex}"
    try:
        secret.write_text("alive")
        assert fails_only_when_isolated(run, programs.READ.format(path=str(secret)))
    finally:
        secret.unlink()


def test_home_is_the_empty_folder_it_starts_in(run: Run) -> None:
    place = "import os, pathlib\nassert str(pathlib.Path.home()) == os.getcwd() == os.environ['TMPDIR']\n"
    assert run(place + "open('mine', 'w').write('x')")["passed"]
    assert run("import os; assert 'mine' not in os.listdir()")["passed"]


@pytest.mark.parametrize(
    ("constant", "canaries"), [("SYSTEM", "/var/tmp"), ("LIBRARIES", "/tmp")], indirect=["canaries"]
)
def test_what_is_shown_is_read_only(run: Run, constant: str, canaries: Path) -> None:
    """Also where permissions would let anybody write: folders of the system, of the interpreter and of libraries."""
    shown = {"SYSTEM": (*sandbox.SYSTEM, "/var"), "LIBRARIES": str(canaries)}[constant]
    outcome = run(
        programs.READ.format(path=str(canaries / "read")) + programs.HARM.format(folder=str(canaries)),
        {constant: shown},
    )
    assert outcome["stdout_tail"].split() == ["refused"] * 5
    assert outcome["passed"]


def test_a_folder_that_holds_the_home_or_temporary_files_is_never_shown(
    run: Run, request: pytest.FixtureRequest, canaries: Path
) -> None:
    home = request.getfixturevalue("ordinary") / "home" if "ordinary" in request.node.name else Path.home()
    weaken = {
        "LIBRARIES": f"{home}:{home.parent}:{tempfile.gettempdir()}:{Path(tempfile.gettempdir()).parent}"
    }
    secret = home / f".unmask-{uuid.uuid4().hex}"
    try:
        secret.write_text("alive")
        for file in (secret, canaries / "read"):
            assert run(programs.READ.format(path=str(file)), weaken)["reason"].startswith("failed: ")
    finally:
        secret.unlink()


def test_files_that_the_caller_has_open(canaries: Path) -> None:
    with (canaries / "read").open() as file:
        os.set_inheritable(file.fileno(), True)
        assert (
            run_program(f"import os; os.pread({file.fileno()}, 5, 0)", timeout=20).reason == "failed: OSError"
        )


@pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="there is no Python of the system")
@pytest.mark.parametrize("run", ["ordinary user" if os.getuid() == 0 else "this user"], indirect=True)
def test_namespaces_of_its_own(run: Run) -> None:
    fails_only_when_isolated(run, programs.NAMESPACE)


def test_limits_of_each_process(run: Run) -> None:
    source = "from resource import *\nprint(*(getrlimit(kind) for kind in (RLIMIT_CPU, RLIMIT_NOFILE, RLIMIT_CORE)))"
    assert run(source, timeout=20)["stdout_tail"] == "(21, 21) (128, 128) (0, 0)\n"


def test_no_capability_can_be_gained_or_kept(run: Run) -> None:
    fails_only_when_isolated(run, programs.GAINABLE)
    assert not run(programs.CAPABILITIES, {"UNUSED_UIDS": [0]})["passed"], "though root keeps its name"


@pytest.mark.skipif(os.getuid() != 0, reason="others cannot take groups")
def test_the_groups_of_root_are_left_behind() -> None:
    given = {"source": "import os; assert 4 in os.getgroups()", "weaken": {}}
    for options, passed in (({"sandbox": "unsafe"}, True), ({}, False)):
        answer = subprocess.run(
            ["setpriv", "--groups", "4", sys.executable, driver.__file__],
            input=json.dumps({**given, "options": {"timeout": 20, **options}}),
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(answer.stdout)["passed"] is passed


@pytest.mark.skipif(os.getuid() != 0, reason="others have none to lose")
def test_root_loses_its_capabilities_and_its_name() -> None:
    nobody = "import os; assert os.getuid() and os.getgid() and not os.getgroups()"
    for source, expected in ((programs.CAPABILITIES, True), (nobody, False)):
        assert run_program(source, timeout=20, sandbox="unsafe").passed is expected
        assert run_program(source, timeout=20).passed is not expected


def test_ordinary_users_have_no_capabilities_either(run: Run) -> None:
    assert run(programs.CAPABILITIES)["reason"] == "failed: AssertionError"


@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_unix_sockets(run: Run, kind: str, canaries: Path) -> None:
    address = str(canaries / "socket") if kind == "file" else f"\0unmask-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        if kind == "file":
            Path(address).chmod(0o777)
        listener.listen()
        source = programs.UNIX.format(address=address)
        assert fails_only_when_isolated(run, source, **({} if kind == "file" else {"UNSHARED": []}))


def test_network(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fails_only_when_isolated(run, programs.CONNECT.format(port=listener.getsockname()[1]), UNSHARED=[])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        source = programs.DATAGRAM.format(port=receiver.getsockname()[1])
        assert run(source, {"UNSHARED": []})["passed"]
        assert receiver.recv(16) == b"secret"
        run(source)
        with pytest.raises(BlockingIOError):
            receiver.recv(16)


def test_shared_memory_that_anybody_may_open(run: Run) -> None:
    libc, key = ctypes.CDLL(None), uuid.uuid4().int & 0x7FFFFFFF
    segment = libc.shmget(key, 4096, 0o1666)
    assert segment != -1
    try:
        fails_only_when_isolated(run, programs.SHARED_MEMORY.format(key=key), UNSHARED=[])
    finally:
        libc.shmctl(segment, 0, None)


def test_tokens_in_the_environment(run: Run) -> None:
    fails_only_when_isolated(run, programs.TOKEN, ENVIRONMENT={"HF_TOKEN": "hf_secret"})
    assert not run(programs.TOKEN, sandbox="unsafe")["passed"]


@pytest.mark.parametrize(
    "source", [programs.MEMORY, programs.PTRACE, programs.SIGNAL], ids=["mem", "ptrace", "kill"]
)
def test_the_process_that_started_it(run: Run, source: str) -> None:
    fails_only_when_isolated(run, source)


def processes_named(name: str) -> list[int]:
    pids = []
    for file in Path("/proc").glob("[0-9]*/comm"):
        try:
            if file.read_text().strip() == name:
                pids.append(int(file.parent.name))
        except OSError:
            continue
    return pids


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


@pytest.mark.parametrize("ending", ["", "assert False", "while True: pass"], ids=["pass", "fail", "hang"])
def test_no_daemon_is_left_behind(run: Run, ending: str) -> None:
    name = uuid.uuid4().hex[:15]
    source = programs.ORPHAN.format(name=name, ending=ending)
    timeout = 1 if "while" in ending else 20
    expected = {"": "passed", "assert False": "failed: AssertionError"}.get(ending, "timeout")
    assert run(source, sandbox="unsafe", timeout=timeout)["reason"] == expected
    left = processes_named(name)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert len(left) >= 3
    assert wait_until(lambda: not processes_named(name))
    assert run(source, timeout=timeout)["reason"] == expected
    assert wait_until(lambda: not processes_named(name))


def test_children_of_an_unprotected_program_end_with_it(run: Run) -> None:
    """Unless they have left its family, as those of `programs.ORPHAN` have."""
    name = uuid.uuid4().hex[:15]
    source = f"import ctypes; ctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0)\n"
    source += "import os, time\nos.fork() or os.setsid()\ntime.sleep(60)"
    assert run(source, sandbox="unsafe", timeout=1)["reason"] == "timeout"
    assert wait_until(lambda: not processes_named(name))


@pytest.mark.skipif(os.getuid() != 0, reason="starts as another user")
@pytest.mark.parametrize("kind", ["bubblewrap", "unsafe"])
def test_programs_end_with_their_parent(ordinary: Path, kind: str) -> None:
    name = uuid.uuid4().hex[:15]
    source = programs.ORPHAN.format(name=name, ending="time.sleep(60)")
    with start_as_ordinary_user(ordinary, source, {}, {"timeout": 60, "sandbox": kind}) as process:
        assert wait_until(lambda: len(processes_named(name)) >= 4)
        process.kill()
    survivors = (
        not wait_until(lambda: not processes_named(name)) if kind == "bubblewrap" else processes_named(name)
    )
    for pid in processes_named(name):
        os.kill(pid, signal.SIGKILL)
    assert bool(survivors) is (kind == "unsafe")


def test_fork_bomb(run: Run) -> None:
    source = programs.FORK.format(attempts=40)
    fails_only_when_isolated(run, source, PROCESSES=200)
    assert 0 < int(run(source)["stdout_tail"]) <= 32
    many = programs.FORK.format(attempts=100) + "time.sleep(60)"
    assert run(many, sandbox="unsafe")["reason"] == "processes"


def test_what_one_program_starts_does_not_count_for_another(run: Run) -> None:
    source = programs.FORK.format(attempts=20) + "time.sleep(3)"
    with ThreadPoolExecutor(2) as pool:
        assert [outcome["reason"] for outcome in pool.map(run, [source] * 2)] == ["passed"] * 2


def test_output_flood(run: Run) -> None:
    source = "for _ in range(40): print('x' * (1 << 20))"
    assert fails_only_when_isolated(run, source, FILE_BYTES=1 << 30) == "failed: OSError"
    outcome = run("print('x' * 5_000_000); print('end')")
    assert outcome["passed"]
    assert len(outcome["stdout_tail"]) == 4096
    assert outcome["stdout_tail"].endswith("xx\nend\n")


def test_writes_are_bounded(run: Run) -> None:
    fails_only_when_isolated(run, programs.BIG_FILE.format(megabytes=33), FILE_BYTES=1 << 30)
    fails_only_when_isolated(run, programs.MANY_FILES.format(files=65), FOLDER_BYTES=1 << 30)


@pytest.mark.parametrize("kind", ["bubblewrap", "unsafe"])
@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nsignal.signal(24, signal.SIG_IGN)\n"
        "while True:\n try: time.sleep(9); raise SystemExit\n except BaseException: pass",
    ],
    ids=["loop", "stubborn"],
)
def test_endless_program(run: Run, source: str, kind: str) -> None:
    assert run(source, timeout=0.5, sandbox=kind)["reason"] == "timeout"


def test_the_limit_is_processor_time_of_all_processes_together(run: Run) -> None:
    """Waiting costs nothing; children that each work for less than the limit, and are gone, do."""
    assert run("import time; time.sleep(0.8)", timeout=0.5)["passed"]
    assert run(programs.TOGETHER, {"PATIENCE": 1000}, timeout=2)["reason"] == "timeout"
    assert run(programs.TOGETHER, timeout=20)["passed"]


@pytest.mark.parametrize("kind", ["bubblewrap", "unsafe"])
def test_memory(run: Run, kind: str) -> None:
    source = "block = bytearray(150 << 20)"
    assert run(source, memory_bytes=100 << 20, sandbox=kind)["reason"] == "memory"
    assert run(source, sandbox=kind)["passed"]
    caught = f"try: {source}\nexcept MemoryError: pass\nelse: assert False"
    assert run(caught, memory_bytes=100 << 20, sandbox=kind)["passed"]
    together = programs.SHARED_HOG.format(processes=6, megabytes=30, seconds=2)
    assert run(together, memory_bytes=100 << 20, sandbox=kind)["reason"] == "memory"
    assert run(together, sandbox=kind)["passed"]


@pytest.mark.parametrize(
    "timeout, memory", [(0, 1 << 30), (float("nan"), 1 << 30), (float("inf"), 1 << 30), (3, 1)]
)
def test_bad_limits(timeout: float, memory: int) -> None:
    with pytest.raises(UnmaskError, match="more than 0 s and 64 MiB"):
        run_program("", timeout, memory)


@pytest.fixture
def asked_anew() -> Iterator[None]:
    for function in (bubblewrap_problem, sandbox._bwrap):
        function.cache_clear()
    yield
    for function in (bubblewrap_problem, sandbox._bwrap):
        function.cache_clear()


NO_PERMISSION = "bwrap: No permissions to create new namespace"


@pytest.mark.usefixtures("asked_anew")
@pytest.mark.parametrize("words, shown", [(None, "is not installed"), (NO_PERMISSION, NO_PERMISSION)])
def test_without_bubblewrap_programs_are_refused_in_one_sentence(
    words: str | None, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\necho '{words}' >&2; exit 1\n")
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnmaskError) as refusal:
        choose_sandbox()
    sentence = str(refusal.value)
    assert shown in sentence
    assert "install the package bubblewrap" in sentence
    assert "--allow-unsafe-code" in sentence
    assert len(sentence.splitlines()) == 1
    assert choose_sandbox(allow_unsafe=True) == "unsafe"
    with pytest.raises((UnmaskError, FileNotFoundError)):
        run_program("")
    assert run_program("assert True", timeout=20, sandbox="unsafe").passed


def test_where_bubblewrap_works_leave_to_do_without_changes_nothing() -> None:
    assert choose_sandbox() == choose_sandbox(allow_unsafe=True) == "bubblewrap"


def test_the_sandbox_can_be_read_in_one_sitting() -> None:
    code = Path(sandbox.__file__).parent
    assert sum(len((code / name).read_text().splitlines()) for name in ("sandbox.py", "code_eval.py")) <= 330
