"""`unmask play` as a command: it prints an address that is answered, and Ctrl-C ends it."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from cli_cases import Run


def test_it_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "unmask", "play", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()  # type: ignore[union-attr]
            address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S{32}", line)
            assert address, line
            with urllib.request.urlopen(address[0], timeout=30) as answer:
                assert "Two settings" in answer.read().decode()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert errors == "Ended.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "/no/such/folder"], "no such folder"),
        (["--port", "70000"], "--port"),
        (["--device", "abacus"], "abacus"),
    ],
)
def test_bad_options_get_one_sentence(run: Run, arguments: list[str], sentence: str) -> None:
    result = run("play", "--no-browser", *arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stdout == ""


def test_a_port_in_use_gets_one_sentence(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("play", "--no-browser", "--port", taken.getsockname()[1])
    assert result.exit_code == 2
    assert "choose another --port" in result.stderr
