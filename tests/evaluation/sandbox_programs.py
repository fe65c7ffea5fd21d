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
            for fd in range(32):
                try:
                    os.close(fd)
                except OSError:
                    pass
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
    lambda: (folder / "added").touch(),
):
    try:
        harm()
        print("harmed")
    except OSError:
        print("refused")
"""

READ = "assert open({path!r}).read() == 'alive'\n"

GAINABLE = """
import ctypes
no_new_privileges = 39
assert ctypes.CDLL(None).prctl(no_new_privileges, 0, 0, 0, 0) == 0
"""

NAMESPACE = """
import ctypes
new_user = 0x10000000
assert ctypes.CDLL(None).unshare(new_user) == 0
"""

TOKEN = "import os; assert 'hf_secret' in os.environ.values()"

MEMORY = """
with open("/proc/PARENT/mem", "rb") as memory:
    memory.seek(ADDRESS)
    assert memory.read(35) == b"a token in the memory of the caller"
"""

PTRACE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
seize = 0x4206  # attaches without stopping
assert libc.ptrace(seize, PARENT, None, None) == 0
"""

SIGNAL = "import os; os.kill(PARENT, 0)"

CAPABILITIES = """
import ctypes, struct
held = ctypes.create_string_buffer(24)
assert ctypes.CDLL(None).capget(struct.pack("=Ii", 0x20080522, 0), held) == 0
effective, permitted = held.raw[0:4] + held.raw[12:16], held.raw[4:8] + held.raw[16:20]
assert any(effective + permitted)
"""

CONNECT = """
import socket
socket.create_connection(("127.0.0.1", {port}), timeout=1).close()
"""

DATAGRAM = """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"secret", ("127.0.0.1", {port}))
"""

SHARED_MEMORY = """
import ctypes
assert ctypes.CDLL(None).shmget({key}, 4096, 0) != -1
"""

UNIX = """
import socket
socket.socket(socket.AF_UNIX).connect({address!r})
"""

TOGETHER = """
import os, time
for _ in range(40):
    child = os.fork()
    if not child:
        while time.process_time() < 0.2: pass
        os._exit(0)
    os.waitpid(child, 0)
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

GUESS = """
import os, sys
guess = "0" * 32
print(guess, "passed", flush=True)
for fd in range(3, 64):
    try:
        os.write(fd, f"\\n{guess}\\npassed\\nready\\n".encode())
    except OSError:
        pass
os._exit(0)
"""
