"""Files that are whole or not there: canonical JSON, atomic replacement, publication by the first writer.

Knows bytes, names and what can go wrong on a disk; nothing of runs. Every failure is one sentence that names
the file, and none leaves half of it behind. A process that is killed may leave a file whose name begins with
a dot; no reader looks at those. What is written passes the redaction of secrets, except the words of models and
benchmarks (`verbatim`, `write_chunks`, `append`): hiding a part of an answer would change a result.
"""

import errno
import fcntl
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from unmask.errors import UnmaskError
from unmask.reading import open_plain, parse_json, plain_lines, read_plain
from unmask.store.redaction import redacted_bytes

NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EINVAL}
"""What file systems without hard links answer."""
Layout = TypeVar("Layout")
"""The struct that a file, or a line of it, is read into."""


def canonical(value: Any) -> bytes:
    """The one spelling of a value as JSON: sorted, compact, ASCII, finite; anything JSON has no form for is refused."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value, enc_hook=_plain_number)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _plain_number(value: Any) -> float:
    """Metrics may be numpy's numbers, which are floats to Python but not to msgspec."""
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def write_atomically(path: Path, text: str | bytes, durable: bool = True, *, verbatim: bool = False) -> None:
    """Write beside the target and rename, so that a reader finds the old file, the new one, or none."""
    content = text.encode("utf-8") if isinstance(text, str) else text
    write_chunks(path, [content if verbatim else redacted_bytes(content)], durable)


def write_chunks(path: Path, chunks: Iterable[bytes], durable: bool = True) -> None:
    """The same, word by word, for content that is too large to hold at once."""
    with explained(path), _beside(path, chunks, durable) as temporary:
        with suppress(FileNotFoundError):
            temporary.chmod(path.stat().st_mode & 0o7777)
        temporary.replace(path)
        if durable:
            sync_folder(path.parent)


def publish_once(path: Path, value: Any) -> bool:
    """Make the file appear whole, unless it is there already; True if this call made it."""
    with explained(path):
        if path.exists():
            return False
        with _beside(path, [redacted_bytes(canonical(value)), b"\n"]) as temporary:
            published = _link(temporary, path)
        sync_folder(path.parent)
        return published


def append(stream: BinaryIO, path: Path, content: bytes) -> None:
    """Add word by word to an unbuffered file; what a full disk or an interrupt cuts short is taken back.

    So lines never run together, and what is written again later does not stand there twice.
    """
    end = os.fstat(stream.fileno()).st_size
    try:
        with explained(path):
            written = 0
            while written < len(content):
                written += os.write(stream.fileno(), content[written:])
    except BaseException:
        with suppress(OSError):
            os.ftruncate(stream.fileno(), end)
        raise


def append_durably(stream: BinaryIO, path: Path, content: bytes) -> None:
    """The same, on the disk before it returns."""
    append(stream, path, content)
    with explained(path):
        os.fsync(stream.fileno())


@contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Keep other processes of this machine out meanwhile; where files cannot be locked, nobody is kept out."""
    try:
        stream = open_to_append(file)
    except OSError:
        yield
        return
    with stream:
        with suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def open_to_append(path: Path) -> BinaryIO:
    """Open a regular file to add to its end, unbuffered; a link, or a pipe that nobody reads, is refused."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    stream = os.fdopen(os.open(path, flags, 0o666), "ab", buffering=0)
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file", str(path))
    return stream


def make_folder(path: Path) -> None:
    """Make a folder and its parents where they are missing."""
    with explained(path):
        path.mkdir(parents=True, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Make names in a folder survive a crash, where the file system knows how."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_json(path: Path, mend: str = "delete it and run the command again") -> dict[str, Any]:
    """The object in a file; one that is missing, unreadable or cut short is an error that says how to mend it."""
    try:
        return parse_object(read_plain(path))
    except FileNotFoundError:
        raise UnmaskError(f"{path} is not there; {mend}.") from None
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read ({error.strerror}); {mend}.") from None
    except ValueError as error:
        raise UnmaskError(f"{path} is damaged or cut short ({error}); {mend}.") from None


def read_json_if_there(
    path: Path, mend: str = "delete it and run the command again"
) -> dict[str, Any] | None:
    """The object in a file, or None where there is no such file."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        pass
    return read_json(path, mend)


def read_struct(path: Path, layout: type[Layout], mend: str) -> Layout | None:
    """The struct in a file, or None where there is none; one that does not fit is an error that says how to mend it."""
    try:
        return msgspec.json.decode(read_plain(path), type=layout)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read ({error.strerror}); {mend}.") from None
    except msgspec.ValidationError as error:
        raise UnmaskError(f"{path} does not have the layout that it should have ({error}); {mend}.") from None
    except (ValueError, RecursionError) as error:
        raise UnmaskError(f"{path} is damaged or cut short ({error}); {mend}.") from None


def read_lines(path: Path, decode: Callable[[bytes], Layout], mend: str) -> Iterator[Layout]:
    """The lines of a file, decoded one at a time; a torn last line is what a kill leaves and is dropped."""
    try:
        with open_plain(path) as stream:
            for number, line in enumerate(plain_lines(stream), start=1):
                torn = not line.endswith(b"\n")
                try:
                    yield decode(line)
                except (ValueError, RecursionError) as error:
                    if torn or not stream.read(1):
                        return
                    raise UnmaskError(f"Line {number} of {path} is damaged ({error}); {mend}.") from None
                if torn:
                    return
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read ({error.strerror}); {mend}.") from None


def parse_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object, with every other outcome a ValueError of a few words."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("it holds no JSON object")
    return value


@contextmanager
def _beside(path: Path, chunks: Iterable[bytes], durable: bool = True) -> Iterator[Path]:
    """A finished file in the same folder under a name of its own, gone afterwards."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as stream:
            for chunk in chunks:
                stream.write(chunk)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _link(temporary: Path, path: Path) -> bool:
    """Give a finished file its name unless the name is taken."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        # Over NFS a lost reply reads as "exists" although the link was made.
        return temporary.stat().st_nlink > 1
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # Without links two writers at the same instant may both succeed: the file is whole all the same.
        if path.exists():
            return False
        temporary.replace(path)
    return True


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """One sentence for whatever the system refuses."""
    try:
        yield
    except OSError as error:
        raise UnmaskError(_sentence(path, error)) from error


def _sentence(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk or quota is full, so {path} was not written; free some space and run the command again."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{path.parent} cannot be written to ({error.strerror}); allow it, or choose another place."
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"{path} cannot be made because a file is in its way; move that file or choose another place."
    return f"{path} cannot be written ({error.strerror or error}); mend that and run the command again."
