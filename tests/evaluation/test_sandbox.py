"""Programs that cheat, hang, multiply, hoard and destroy; wherever it is safe, a control run without the
protection shows that the program would have succeeded."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sandbox_programs as programs

from unmask.errors import UnmaskError
from unmask.evaluation import sandbox
from unmask.evaluation.sandbox import LAYERS, Isolation, isolation, run_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the layers are Linux's")
MOUNTS = ("user_namespace", "mount_namespace")
AS_ROOT = os.getuid() == 0


def granted(*layers: str) -> tuple[str, ...]:
    """These layers, or a skip where the system does not grant them all."""
    there = isolation().layers | ({"landlock"} if isolation().landlock else set())
    missing = sorted(set(layers) - there)
    if missing:
        pytest.skip(f"not granted here: {', '.join(missing)}")
    return layers


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    isolation()
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert not list(folder.iterdir()), "a program's folder was left behind"


CANARIES = ("chmod", "delete", "overwrite", "rename", "truncate")


@pytest.fixture
def canaries() -> Iterator[Path]:
    """Files that permissions do not protect: anyone may change or delete them."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o777)
    for name in CANARIES:
        (folder / name).write_text("alive")
        (folder / name).chmod(0o666)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def neighbour() -> Iterator[tuple[int, str]]:
    """Another process of the tester with a secret in its environment."""
    secret = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"HF_TOKEN": secret},
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid, secret
        process.kill()


@pytest.mark.parametrize(
    "source, reason",
    [
        ("assert 1 + 1 == 2", "passed"),
        ("from __future__ import annotations\nimport hashlib, json, math", "passed"),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nassert P(1).x == 1", "passed"),
        ("if __name__ == '__main__':\n    assert False", "passed"),
        ("assert 1 + 1 == 3", "failed: AssertionError"),
        ("def f(:", "failed: SyntaxError"),
        ("x = '\ud800'; undefined", "failed: UnicodeEncodeError"),
        ("import sys; sys.exit(0)\nassert False", "failed: SystemExit"),
        ("import os; print('passed', flush=True); os._exit(0)", "failed: exited early"),
        ("import os\nif os.fork(): os._exit(0)", "failed: exited early"),
        (
            "import os\nfor fd in range(3, 99):\n try: os.write(fd, b'\\n')\n except OSError: 0\nos._exit(0)",
            None,
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "failed: SIGSEGV"),
        ("input()", "failed: EOFError"),
        ("#" * 1_000_001, "refused: longer than 1000000 characters"),
    ],
)
def test_verdict(source: str, reason: str | None) -> None:
    outcome = run_program(source, timeout=20)
    assert outcome.reason == (reason or "failed: exited early")
    assert outcome.passed == (reason == "passed")


def test_program_that_replaces_functions_of_the_runner() -> None:
    assert run_program("import os; os.write = os.read = os._exit = os.getpid = None", timeout=20).passed


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nsignal.signal(24, signal.SIG_IGN)\n"
        "while True:\n try: time.sleep(9); raise SystemExit\n except BaseException: pass",
        "while True: print('x' * 1000)",
    ],
    ids=["loop", "stubborn", "flood"],
)
def test_endless_program(source: str) -> None:
    outcome = run_program(source, timeout=0.5)
    assert outcome.reason == "timeout"
    assert len(outcome.stdout_tail) <= 4096


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="the system tells no processor time")
def test_the_limit_is_processor_time_so_waiting_fails_no_program() -> None:
    assert run_program("import time; time.sleep(0.8)", timeout=0.5).passed


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="the system tells no processor time")
def test_processor_time_is_that_of_all_processes_together() -> None:
    """Each child works for less than the limit and is gone; together they work for longer."""
    source = (
        "import os, time\n"
        "for _ in range(40):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        while time.process_time() < 0.2: pass\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
    )
    assert run_program(source, timeout=2).reason == "timeout"
    assert run_program(source, timeout=20).passed


def test_output_is_cut_to_its_tail() -> None:
    outcome = run_program("print('x' * 5_000_000); print('end')", timeout=20)
    assert outcome.passed
    assert len(outcome.stdout_tail) == 4096
    assert outcome.stdout_tail.endswith("xx\nend\n")


@pytest.mark.parametrize("dropped", [(), ("user_namespace",)], ids=["own count", "count of the user"])
def test_fork_bomb_is_refused(dropped: tuple[str, ...]) -> None:
    if not isolation().counts_processes:
        pytest.skip("the process limit does not bind root")
    layers = set(LAYERS) - set(dropped)
    outcome = run_program(programs.FORK.format(attempts=100), timeout=20, layers=layers)
    assert outcome.reason == "failed: AssertionError"
    assert 0 < int(outcome.stdout_tail) <= 32


@pytest.mark.skipif(not AS_ROOT, reason="on others the limit binds without any layer")
def test_fork_bomb_as_root_would_not_be_refused() -> None:
    assert run_program(programs.FORK.format(attempts=40), timeout=20, layers=()).passed


@pytest.mark.parametrize("ending", ["", "assert False", "while True: pass"], ids=["pass", "fail", "hang"])
@pytest.mark.parametrize("dropped", [(), ("pid_namespace",)], ids=["pid namespace", "subreaper"])
def test_no_process_survives(ending: str, dropped: tuple[str, ...]) -> None:
    name = uuid.uuid4().hex[:15]
    source = programs.ORPHAN.format(name=name, ending=ending)
    outcome = run_program(source, timeout=2 if "while" in ending else 20, layers=set(LAYERS) - set(dropped))
    assert outcome.reason == {"": "passed", "assert False": "failed: AssertionError"}.get(ending, "timeout")
    assert name not in names_of_processes()


def names_of_processes() -> set[str]:
    names = set()
    for file in Path("/proc").glob("[0-9]*/comm"):
        try:
            names.add(file.read_text().strip())
        except OSError:
            continue
    return names


def test_names_of_processes_are_seen() -> None:
    assert Path("/proc/self/comm").read_text().strip() in names_of_processes()


def test_memory_hog() -> None:
    source = "block = bytearray(150 << 20)"
    assert run_program(source, timeout=20, memory_bytes=100 << 20).reason == "memory"
    assert run_program(source, timeout=20).passed
    caught = f"try: {source}\nexcept MemoryError: pass\nelse: assert False"
    assert run_program(caught, timeout=20, memory_bytes=100 << 20).passed


def test_memory_hog_by_many_processes() -> None:
    source = programs.SHARED_HOG.format(processes=6, megabytes=30, seconds=20)
    assert run_program(source, timeout=20, memory_bytes=100 << 20).reason == "memory"


@pytest.mark.parametrize("layers", [LAYERS, MOUNTS], ids=["all", "mounts"])
def test_files_survive(layers: tuple[str, ...], canaries: Path) -> None:
    if layers is not LAYERS:
        granted(*layers)
    outcome = run_program(programs.HARM.format(folder=str(canaries)), timeout=20, layers=layers)
    assert outcome.isolation.protects_files
    assert outcome.stdout_tail.split() == ["refused"] * 6
    assert sorted(file.name for file in canaries.iterdir()) == sorted(CANARIES)
    for file in canaries.iterdir():
        assert file.read_text() == "alive"
        assert file.stat().st_mode & 0o777 == 0o666


def test_files_survive_by_landlock_alone_but_for_their_mode(canaries: Path) -> None:
    if isolation().landlock < 3:
        pytest.skip("Landlock does not protect here")
    source = programs.HARM.format(folder=str(canaries))
    outcome = run_program(source, timeout=20, layers=("landlock",))
    assert outcome.isolation.protects_files
    assert outcome.stdout_tail.split() == ["refused"] * 4 + ["harmed", "refused"]


def test_files_would_not_survive_without_layers(canaries: Path) -> None:
    outcome = run_program(programs.HARM.format(folder=str(canaries)), timeout=20, layers=())
    assert outcome.stdout_tail.split() == ["harmed"] * 6
    assert "the user's files can be changed" in outcome.isolation.gaps


def test_files_elsewhere_are_not_read(canaries: Path) -> None:
    source = programs.READ.format(path=str(canaries / "delete"))
    assert run_program(source, timeout=20, layers=()).passed
    assert run_program(source, timeout=20, layers=granted("landlock")).reason == "failed: PermissionError"


@pytest.mark.parametrize("layers", [LAYERS, ("landlock",), MOUNTS, ("nobody",)], ids="+".join)
def test_secrets_of_other_processes(layers: tuple[str, ...], neighbour: tuple[int, str]) -> None:
    if layers is not LAYERS:
        granted(*layers)
    source = programs.ENVIRON_OF.format(pid=neighbour[0], secret=neighbour[1])
    assert run_program(source, timeout=20, layers=layers).reason.startswith("failed: ")


@pytest.mark.skipif(AS_ROOT, reason="root without capabilities may not look into root with them")
def test_secrets_of_other_processes_would_be_seen(neighbour: tuple[int, str]) -> None:
    source = programs.ENVIRON_OF.format(pid=neighbour[0], secret=neighbour[1])
    assert run_program(source, timeout=20, layers=()).passed


def test_environment_holds_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    outcome = run_program("import os; print(sorted(os.environ)); assert 'HF_TOKEN' not in os.environ", 20)
    assert outcome.passed
    assert "TOKEN" not in outcome.stdout_tail


def test_home_is_the_empty_folder_it_starts_in() -> None:
    source = "import os, pathlib\nassert str(pathlib.Path.home()) == os.getcwd()\nassert not os.listdir()"
    assert run_program(source + "\nopen('mine', 'w').write('x')", 20).passed


@pytest.mark.parametrize("layers", [("user_namespace", "pid_namespace"), ("nobody",)], ids="+".join)
def test_other_processes_are_not_signalled(layers: tuple[str, ...], neighbour: tuple[int, str]) -> None:
    source = programs.SIGNAL.format(pid=neighbour[0])
    assert run_program(source, timeout=20, layers=()).passed
    assert run_program(source, timeout=20, layers=granted(*layers)).reason.startswith("failed: ")


def test_network_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        source = programs.CONNECT.format(port=listener.getsockname()[1])
        assert run_program(source, timeout=20, layers=()).passed
        closed = run_program(source, timeout=20, layers=granted("user_namespace", "network_namespace"))
        assert closed.isolation.closes_network
        assert closed.reason in ("failed: OSError", "failed: ConnectionRefusedError")
        if isolation().landlock >= 4:
            assert run_program(source, timeout=20, layers=("landlock",)).reason == "failed: PermissionError"


def test_datagrams_do_not_leave() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        source = programs.DATAGRAM.format(port=listener.getsockname()[1])
        assert run_program(source, timeout=20, layers=()).passed
        granted("network_namespace")
        assert run_program(source, timeout=20).reason == "failed: OSError"


def test_writes_are_bounded() -> None:
    assert run_program(programs.BIG_FILE.format(megabytes=33), timeout=20).reason == "failed: OSError"
    granted("mount_namespace")
    assert run_program(programs.MANY_FILES.format(files=65), timeout=20).reason == "failed: OSError"
    assert run_program(programs.MANY_FILES.format(files=60), timeout=20).passed


def test_locked_folder_is_removed() -> None:
    source = "import os\nos.makedirs('a/b'); open('a/b/c', 'w')\nos.chmod('a/b', 0); os.chmod('a', 0)"
    assert run_program(source, timeout=20, layers=()).passed


def test_child_loads_nothing_heavy() -> None:
    source = "import sys\nassert not {'torch', 'numpy', 'lm_eval', 'click'} & set(sys.modules)"
    assert run_program(source, timeout=20).passed


def test_gaps_are_named() -> None:
    assert len(Isolation().gaps) == 4
    assert Isolation(frozenset(LAYERS), 7, True).gaps == []
    assert Isolation(landlock=2).protects_files is False
    assert run_program("", timeout=20, layers=()).isolation.layers == frozenset()


@pytest.mark.parametrize(
    "timeout, memory", [(0, 1 << 30), (float("nan"), 1 << 30), (float("inf"), 1 << 30), (3, 1)]
)
def test_bad_limits(timeout: float, memory: int) -> None:
    with pytest.raises(UnmaskError, match="positive time limit and 64 MiB"):
        run_program("", timeout, memory)


def test_sandbox_that_cannot_start_is_an_error_and_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_PACKAGE_ROOT", "/nowhere")
    monkeypatch.setattr(sandbox, "_START", "raise SystemExit('no such thing')")
    with pytest.raises(UnmaskError, match="could not start: no such thing"):
        run_program("")
