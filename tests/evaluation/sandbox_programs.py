"""Hostile programs, as texts: each does one harmful thing and passes when it succeeds with it."""

FORK = """
import os, time
born = []
for attempt in range({attempts}):
    try:
        pid = os.fork()
    except BlockingIOError:
        break
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    born.append(pid)
print(len(born))
assert len(born) == {attempts}
"""

ORPHAN = """
import ctypes, os, time
ctypes.CDLL(None).prctl(15, b"{name}", 0, 0, 0)
reader, writer = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            os.write(writer, b".")
            time.sleep(60)
        os._exit(0)
seen = b""
while len(seen) < 3:
    seen += os.read(reader, 3)
{ending}
"""

HARM = """
import os, pathlib
folder = pathlib.Path({folder!r})
for harm in (
    lambda: (folder / "delete").unlink(),
    lambda: os.rename(folder / "rename", folder / "renamed"),
    lambda: (folder / "overwrite").open("r+").write("gone"),
    lambda: os.truncate(folder / "truncate", 0),
    lambda: os.chmod(folder / "chmod", 0),
    lambda: (folder / "added").touch(),
):
    try:
        harm()
        print("harmed")
    except OSError:
        print("refused")
"""

READ = "assert open({path!r}).read()"

ENVIRON_OF = "assert {secret!r} in open('/proc/{pid}/environ').read()"

SIGNAL = "import os; os.kill({pid}, 0)"

CONNECT = """
import socket
socket.create_connection(("127.0.0.1", {port}), timeout=1).close()
"""

DATAGRAM = """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"secret", ("127.0.0.1", {port}))
"""

SHARED_HOG = """
import os, time
for _ in range({processes}):
    if os.fork() == 0:
        block = bytearray(os.urandom(1 << 20)) * ({megabytes})
        time.sleep(60)
        os._exit(0)
time.sleep({seconds})
"""

BIG_FILE = """
with open("big", "wb") as file:
    for _ in range({megabytes}):
        file.write(bytes(1 << 20))
"""

MANY_FILES = """
for number in range({files}):
    with open(str(number), "wb") as file:
        file.write(bytes(1 << 20))
"""
