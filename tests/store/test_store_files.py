"""Files are whole or not there, and whatever a disk refuses is one sentence."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.store import canonical, publish_once, read_json, write_atomically
from unmask.store import files as files_module
from unmask.store.files import append, read_json_if_there, read_lines, write_chunks

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), values, max_size=4)


def fails(code: int) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return refuse


# Canonical JSON.


@given(objects)
def test_canonical_keeps_the_value_and_forgets_the_order(value: dict[str, Any]) -> None:
    backwards = dict(reversed(value.items()))
    assert canonical(value) == canonical(backwards)
    assert json.loads(canonical(value)) == value
    assert b"\n" not in canonical(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Path("x"), {1, 2}, object()])
def test_canonical_refuses_what_json_has_no_form_for(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        canonical({"value": value})


# Writing.


def test_a_replaced_file_keeps_its_mode_and_a_new_one_gets_the_usual_one(tmp_path: Path) -> None:
    file, private = tmp_path / "new", tmp_path / "private"
    write_atomically(file, "a")
    usual = tmp_path / "usual"
    usual.touch()
    private.touch(0o600)
    write_atomically(private, "ü")
    assert file.stat().st_mode == usual.stat().st_mode
    assert private.stat().st_mode & 0o777 == 0o600
    assert private.read_text(encoding="utf-8") == "ü"


def test_the_first_publication_stays(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    assert publish_once(file, {"writer": 1}) is True
    assert publish_once(file, {"writer": 2}) is False
    assert read_json(file) == {"writer": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_a_writer_that_comes_second_between_check_and_link_loses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "result.json"
    publish_once(file, {"writer": 1})
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert publish_once(file, {"writer": 2}) is False
    assert read_json(file) == {"writer": 1}


def test_a_link_whose_reply_was_lost_counts_as_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def link_and_lose_the_reply(*arguments: Any, **options: Any) -> None:
        link(*arguments, **options)
        raise FileExistsError

    monkeypatch.setattr(os, "link", link_and_lose_the_reply)
    assert publish_once(tmp_path / "result.json", {"writer": 1}) is True
    assert read_json(tmp_path / "result.json") == {"writer": 1}


@pytest.mark.parametrize("code", sorted(files_module.NO_LINKS))
def test_publishing_works_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(os, "link", fails(code))
    assert publish_once(tmp_path / "result.json", {"writer": 1}) is True
    assert publish_once(tmp_path / "result.json", {"writer": 2}) is False
    assert read_json(tmp_path / "result.json") == {"writer": 1}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_value_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        publish_once(tmp_path / "result.json", {"value": float("nan")})
    with pytest.raises(ZeroDivisionError):
        write_chunks(tmp_path / "samples.jsonl", (b"x" * (1 // (3 - n)) for n in range(9)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (errno.ENOSPC, "disk or quota is full.*result.json was not written; free some space"),
        (errno.EDQUOT, "disk or quota is full"),
        (errno.EROFS, "cannot be written to .*choose another place"),
        (errno.EACCES, "cannot be written to"),
        (errno.EIO, "result.json cannot be written"),
    ],
)
@pytest.mark.parametrize("place", ["fsync", "replace", "link"])
def test_a_disk_that_refuses_is_one_sentence_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, says: str, place: str
) -> None:
    old = tmp_path / "old.json"
    old.write_text("old")
    monkeypatch.setattr(os, place, fails(code))
    if place != "replace":
        with pytest.raises(UnmaskError, match=says):
            publish_once(tmp_path / "result.json", {"value": 1})
    if place != "link":
        with pytest.raises(UnmaskError, match=says.replace("result", "old")):
            write_atomically(old, "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["old.json"]
    assert old.read_text() == "old"


def test_a_missing_folder_and_a_file_in_the_way_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnmaskError, match="No such file"):
        write_atomically(tmp_path / "nowhere" / "a", "x")
    with pytest.raises(UnmaskError, match="a file is in its way"):
        publish_once(tmp_path / "file" / "a", {})


TINY = """
import os, sys
from pathlib import Path
from unmask.errors import UnmaskError
from unmask.store import Store, publish_once
from unmask.store.attempt import GeneratedAnswer
from unmask.store.run_folder import WorkerSettings
folder = Path(sys.argv[1])
def told(action):
    try:
        action()
    except UnmaskError as error:
        print(error)
def fill(attempt):
    for number in range(100):
        text = "x" * 2000
        attempt.answer(GeneratedAnswer(key=str(number), text=text, tokens=1, finish="stop", effect=(1, [], [], 0, 0)))
run = Store.at(folder).run({"task": "t"})
attempt = run.new_attempt()
told(lambda: fill(attempt))
told(attempt.close)
told(lambda: publish_once(run.folder / "result.json", {"text": "x" * 100_000}))
whole = sorted(run.answers(), key=int)
assert whole == [str(number) for number in range(len(whole))] and len(whole) > 5, whole
assert (attempt.folder / "answers.jsonl").read_bytes().endswith(b"\\n")
assert not (run.folder / "result.json").exists()
assert not [name for _, _, names in os.walk(folder) for name in names if name.startswith(".")]
assert attempt.fail("disk full") in (True, False)
os.system(f"mount -o remount,ro {folder}")
told(lambda: Store.at(folder).run({"task": "other"}))
told(run.new_attempt)
told(lambda: run.set_worker(WorkerSettings(batch_size=2)))
assert attempt.fail("read-only") is False
print("whole")
"""


def test_a_really_full_disk_and_a_really_read_only_folder(tmp_path: Path) -> None:
    inside = f'mount -t tmpfs -o size=128k none "{tmp_path}" && exec "{sys.executable}" -c "$0" "{tmp_path}"'
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount a small disk")
    told = subprocess.run(
        ["unshare", "-rm", "sh", "-c", inside, TINY], capture_output=True, text=True, check=False
    )
    lines = told.stdout.splitlines()
    assert told.returncode == 0, told.stderr
    assert [("disk or quota is full" in line, "cannot be written to" in line) for line in lines] == [
        *[(True, False)] * 3,
        *[(False, True)] * 3,
        (False, False),
    ], told.stdout


def test_what_a_full_disk_cuts_short_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, write = tmp_path / "answers.jsonl", os.write
    stream = file.open("ab", buffering=0)
    append(stream, file, b'{"key":"a"}\n')
    room = [5]

    def little_room(handle: int, content: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, content[: room.pop() or None])

    monkeypatch.setattr(os, "write", little_room)
    room.insert(0, 0)
    with pytest.raises(UnmaskError, match="disk or quota is full"):
        append(stream, file, b'{"key":"b"}\n')
    monkeypatch.setattr(os, "write", write)
    append(stream, file, b'{"key":"b"}\n')
    stream.close()
    assert [line["key"] for line in read_lines(file, json.loads, "")] == ["a", "b"]


# Reading.


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (b'{"value": 0.', "no JSON at character"),
        (b"[1]", "no JSON object"),
        (b'{"value": NaN}', "it holds NaN"),
        (b"\xff\xfe\xfa", "it is not text"),
        (b'{"a":' * 100_000, "nested too deeply|no JSON"),
    ],
)
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "result.json"
    file.write_bytes(content)
    with pytest.raises(UnmaskError, match=says) as caught:
        read_json(file, "mend it so")
    assert str(file) in str(caught.value)
    assert str(caught.value).endswith("; mend it so.")


def test_missing_files(tmp_path: Path) -> None:
    assert read_json_if_there(tmp_path / "nothing") is None
    assert list(read_lines(tmp_path / "nothing", json.loads, "")) == []
    with pytest.raises(UnmaskError, match="is not there"):
        read_json(tmp_path / "nothing")
    with pytest.raises(UnmaskError, match="cannot be read"):
        read_json(tmp_path)


@given(rows=st.lists(objects, min_size=1, max_size=4), data=st.data())
def test_lines_cut_anywhere_give_the_whole_ones_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    lines = [canonical(row) for row in rows]
    content = b"\n".join(lines) + b"\n"
    cut = data.draw(st.integers(0, len(content)))
    file = tmp_path_factory.mktemp("lines") / "answers.jsonl"
    file.write_bytes(content[:cut])
    ends = [sum(len(line) + 1 for line in lines[: n + 1]) - 1 for n in range(len(lines))]
    assert list(read_lines(file, json.loads, "")) == [
        row for row, end in zip(rows, ends, strict=True) if end <= cut
    ]


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_bytes(b'{"key":1}\n{"key":\n{"key":3}\n')
    lines = read_lines(file, json.loads, "do this")
    assert next(lines) == {"key": 1}
    with pytest.raises(UnmaskError, match=r"Line 2 of .*answers.jsonl is damaged .*; do this\."):
        next(lines)


def test_a_line_that_is_being_written_while_another_reads_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_bytes(b'{"key":1}\n{"ke')
    lines = read_lines(file, json.loads, "")
    assert next(lines) == {"key": 1}
    with file.open("ab") as stream:
        stream.write(b'y":2}\n{"key":3}\n')
    assert list(lines) in ([], [{"key": 2}, {"key": 3}])


def test_what_an_interrupt_cuts_short_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is stopped in the middle of a write writes again when it closes."""
    file, write = tmp_path / "answers.jsonl", os.write
    with file.open("ab", buffering=0) as stream:
        append(stream, file, b'{"key":"a"}\n')

        def interrupted(handle: int, content: bytes) -> int:
            write(handle, content[:5])
            raise KeyboardInterrupt

        monkeypatch.setattr(files_module.os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            append(stream, file, b'{"key":"b"}\n')
        monkeypatch.undo()
        assert file.read_bytes() == b'{"key":"a"}\n'
        append(stream, file, b'{"key":"b"}\n')
    assert file.read_bytes() == b'{"key":"a"}\n{"key":"b"}\n'
