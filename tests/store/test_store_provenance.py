"""Provenance: which code and which machine, and no secret."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from unmask.cli.run_one import run_one
from unmask.store import Store, redaction
from unmask.store.computation import Computation
from unmask.store.environment import computation, environment, git_state, gpus, loaded_code
from unmask.store.redaction import HIDDEN, redacted, redacted_arguments
from unmask.store.result import Environment


def here(**changes: Any) -> Environment:
    told = {"device": "cpu", "dtype": "float32", "threads": 1, "batch_size": 4, "seed": 0, "cuda": None}
    return environment(**{**told, **changes})


def test_the_environment_says_what_there_is() -> None:
    found = here()
    assert found.packages["msgspec"]
    assert found.cores >= 1
    assert found.memory_gb > 0
    assert (found.device, found.batch_size) == ("cpu", 4)


def test_the_version_is_that_of_the_code_and_not_of_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmask.store.environment.__version__", "9.8.7")
    found = here()
    assert found.packages["unmask"] == "9.8.7"


def test_no_token_reaches_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "a plain word as token")
    monkeypatch.setattr(
        sys, "argv", ["unmask", "--token=abc123", "--password", "xyz789", "a plain word as token"]
    )
    text = str(here())
    for secret in ("abc123", "xyz789", "plain word"):
        assert secret not in text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--token", "abc", "run"], ["--token", HIDDEN, "run"]),
        (["--hf-token=abc"], [f"--hf-token={HIDDEN}"]),
        (["HF_TOKEN=abc"], [f"HF_TOKEN={HIDDEN}"]),
        (["--api-key", "abc"], ["--api-key", HIDDEN]),
        (["hf_AbCdEfGhIjKlMn"], [HIDDEN]),
        (["https://me:word@host/x"], [f"https://{HIDDEN}@host/x"]),
        (["--mask-token-id", "5"], ["--mask-token-id", "5"]),
        (["--max-new-tokens", "16"], ["--max-new-tokens", "16"]),
        (["recipes/00_baseline", "--limit", "5"], ["recipes/00_baseline", "--limit", "5"]),
    ],
)
def test_arguments_lose_their_secrets_and_nothing_else(given: list[str], kept: list[str]) -> None:
    assert redacted_arguments(given) == kept


@given(
    st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=20),
    st.text(),
    st.text(),
)
def test_a_token_disappears_from_any_text(token: str, before: str, after: str) -> None:
    assert token not in redacted(f"{before} hf_{token} {after}") or token in before + after


@pytest.mark.parametrize("spell", [str, repr, ascii, json.dumps, lambda value: repr(value.encode())])
@pytest.mark.parametrize("nest", [str, repr, json.dumps])
def test_a_value_is_found_however_a_traceback_spells_it(
    spell: Callable[[str], str], nest: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = 'it\'s "quoted", cut\\by\ttabs and ümlauts'
    monkeypatch.setenv("DB_PASSWORD", value)
    text = nest(f"environ({{'A': 'b', 'DB_PASSWORD': {spell(value)}}})")
    clean = redacted(text)
    assert HIDDEN in clean
    assert not any(word in clean for word in ("quoted", "cut", "tabs", "mlauts"))


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("{'my_secret': b'abc-123'}", f"{{'my_secret': b'{HIDDEN}'}}"),
        ("STORAGE_KEY = abc-123", f"STORAGE_KEY = {HIDDEN}"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", f"Authorization: Basic {HIDDEN}"),
        ("postgres://me:wo@rd@host/db", f"postgres://{HIDDEN}@host/db"),
        ("id eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk", f"id {HIDDEN}"),
        ("sorted(rows, key = size)", "sorted(rows, key = size)"),
        ("token = next(tokens)", "token = next(tokens)"),
        ("https://host/a@b", "https://host/a@b"),
        ("a basic question", "a basic question"),
    ],
)
def test_what_is_hidden_in_a_text(text: str, clean: str) -> None:
    assert redacted(text) == clean


def test_a_secret_is_found_wherever_a_line_without_end_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "plain-words-for-the-hub"
    monkeypatch.setenv("HF_TOKEN", secret)
    for shift in (1, 11, len(secret) - 1):
        line = "." * shift + "".join(f"{letter * (2 * 65536 - len(secret))}{secret}" for letter in "ab")
        (tmp_path / "line").write_text(line)
        with (tmp_path / "line").open("rb") as source, (tmp_path / "clean").open("wb") as target:
            redaction._copy(source.fileno(), target.fileno())
        assert (tmp_path / "clean").read_text() == line.replace(secret, HIDDEN)


# Git.


def git(folder: Path, *arguments: str) -> None:
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *settings, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    code = tmp_path / "src" / "package"
    code.mkdir(parents=True)
    (code / "__init__.py").write_text("a = 1\n")
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    return code


def test_clean_changed_and_new_code_are_told_apart(checkout: Path) -> None:
    clean = git_state(checkout)
    assert (clean["dirty"], clean["diff_sha256"]) == (False, None)
    assert len(clean["commit"]) == 40
    (checkout / "__init__.py").write_text("a = 2\n")
    changed = git_state(checkout)
    assert (changed["dirty"], changed["commit"]) == (True, clean["commit"])
    (checkout / "new.py").write_text("b = 1\n")
    added = git_state(checkout)
    (checkout / "new.py").write_text("b = 2\n")
    edited = git_state(checkout)
    assert len({state["diff_sha256"] for state in (changed, added, edited)}) == 3
    (checkout / "new.py").unlink()
    assert git_state(checkout) == changed


def test_notes_results_and_caches_do_not_make_code_differ(checkout: Path) -> None:
    clean = git_state(checkout)
    (checkout.parents[1] / "results").mkdir()
    (checkout.parents[1] / "results" / "result.json").write_text("{}")
    (checkout.parents[1] / ".gitignore").write_text("*.pyc\n*.tmp\n")
    (checkout / "cache.pyc").write_text("")
    assert git_state(checkout) == clean


def test_code_installed_inside_another_checkout_has_no_commit(checkout: Path) -> None:
    installed = checkout.parents[1] / "site-packages" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").touch()
    assert git_state(installed) == {"commit": None, "dirty": None, "diff_sha256": None}


def test_without_git_nothing_is_claimed(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert git_state(checkout) == {"commit": "unknown", "dirty": None, "diff_sha256": None}


def kind_of(code: Path, monkeypatch: pytest.MonkeyPatch) -> Computation:
    """The kind of computation of a process that runs this code."""
    monkeypatch.setattr("unmask.store.environment.CODE", code)
    loaded_code.cache_clear()
    found = computation(device="cpu", dtype="float32")
    loaded_code.cache_clear()
    return found


def test_on_a_node_without_git_the_code_itself_decides(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the same answers are computed again there, or those of edited code are taken for the same."""
    here = kind_of(checkout, monkeypatch)
    monkeypatch.setenv("PATH", "/nowhere")
    there = kind_of(checkout, monkeypatch)
    assert (there.commit, here.change_to(there), there.change_to(here)) == ("unknown", "", "")
    (checkout / "__init__.py").write_text("a = 2\n")
    edited = kind_of(checkout, monkeypatch)
    assert there.change_to(edited).startswith("code_sha256 ")
    (checkout / "__init__.py").rename(checkout / "other.py")
    assert edited.change_to(kind_of(checkout, monkeypatch)) != ""


def test_a_difference_that_git_does_not_tell_is_unknown(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else answers of edited code could be taken for those of the commit, where git is slow or fails."""
    clean = kind_of(checkout, monkeypatch)
    programs = tmp_path / "programs"
    programs.mkdir()
    git_of_this_machine = shutil.which("git")
    (programs / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *" diff "*) exit 1;; esac\nexec {git_of_this_machine} "$@"\n'
    )
    (programs / "git").chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    unknown = kind_of(checkout, monkeypatch)
    assert (unknown.commit, unknown.diff_sha256) == (clean.commit, "unknown")
    assert clean.change_to(unknown) == ""
    older = msgspec.structs.replace(clean, code_sha256=None)
    assert "diff_sha256" in older.change_to(unknown)
    (checkout / "__init__.py").write_text("a = 2\n")
    assert "code_sha256" in unknown.change_to(kind_of(checkout, monkeypatch))


def test_a_worker_looks_at_its_code_before_it_loads_more_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading takes minutes, and an edit meanwhile would be recorded as the code that ran."""
    seen = []
    stand_in = ModuleType("unmask.evaluation.worker")
    stand_in.complete = lambda *_: seen.append(loaded_code.cache_info().currsize)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "unmask.evaluation.worker", stand_in)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    loaded_code.cache_clear()
    folder = Store(tmp_path).run({"kind": "accuracy", "task": {"name": "arith"}}).folder
    assert CliRunner().invoke(run_one, [str(folder), "--keep-output"]).exit_code == 0
    assert seen == [1]


# GPUs.

TWO = "0, Quadro RTX 6000, GPU-aaaa, 575.57.08, 24024\n1, Quadro RTX 6000, GPU-bbbb, 575.57.08, [N/A]\n"


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{TWO}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["GPU-aaaa", "GPU-bbbb"]),
        ("1", ["GPU-bbbb"]),
        ("1,0", ["GPU-bbbb", "GPU-aaaa"]),
        ("GPU-aa", ["GPU-aaaa"]),
        ("", []),
        ("MIG-1", ["GPU-aaaa", "GPU-bbbb"]),
    ],
)
@pytest.mark.usefixtures("two_gpus")
def test_the_gpus_are_those_the_process_may_use(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[str]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = gpus()
    assert [gpu.uuid for gpu in found] == expected
    memories = {"GPU-aaaa": 23.46, "GPU-bbbb": None}
    assert all(gpu.memory_gb == memories[gpu.uuid] for gpu in found)


def test_a_missing_or_failing_nvidia_smi_means_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus() == []
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed, a, b, c, d'\nexit 9\n")
    program.chmod(0o755)
    assert gpus() == []


@pytest.mark.parametrize("module", ["state", "export", "environment", "foreign", "experiments"])
def test_the_store_imports_nothing_heavy(module: str) -> None:
    heavy = "('torch', 'transformers', 'lm_eval', 'datasets', 'numpy', 'pyarrow')"
    program = f"import sys, unmask.store.{module}; print([name for name in {heavy} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
