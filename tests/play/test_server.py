"""The server: its own page may ask, nobody else may; a browser that goes away ends what it asked for."""

import http.client
import json
import socket
import time
from typing import Any

import pytest

from unmask.play.presets import questions
from unmask.play.server import MOST_BODY, TOKEN_HEADER, PlayServer

ASKED = {"prompt": questions()[0]["prompt"], "sides": [{}, {"policy": "trim:keep=0"}], "max_new_tokens": "48"}


def ask(
    server: PlayServer, path: str, body: Any = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    given = {TOKEN_HEADER: server.token, "Content-Type": "application/json", **headers}
    given = {name.replace("_", "-"): value for name, value in given.items() if value}
    connection.request(
        "GET" if body is None else "POST",
        path,
        body if isinstance(body, str | bytes) else json.dumps(body),
        given,
    )
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def test_it_listens_on_the_loopback_only(server: PlayServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_the_page_names_no_other_address_and_no_token(server: PlayServer) -> None:
    status, headers, page = ask(server, f"/?token={server.token}", X_Unmask_Token="")
    assert status == 200
    assert "http" not in page.replace("http-equiv", "")
    assert server.token not in page
    assert headers["Content-Security-Policy"].endswith("frame-ancestors 'none'")
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({TOKEN_HEADER: "wrong"}, "The token is wrong"),
        ({TOKEN_HEADER: ""}, "The token is wrong"),
        ({"Host": "evil.example"}, "under its own address only"),
        ({"Host": "127.0.0.1"}, "under its own address only"),
        ({"Origin": "http://evil.example"}, "its own page only"),
        ({"Origin": "null"}, "its own page only"),
        ({"Sec-Fetch-Site": "cross-site"}, "its own page only"),
        ({"Sec-Fetch-Site": "same-site"}, "its own page only"),
    ],
)
def test_others_are_refused(server: PlayServer, headers: dict[str, str], sentence: str) -> None:
    for path, body in (("/decode", ASKED), ("/check", ASKED)):
        status, _, text = ask(server, path, body, **headers)
        assert status == 403
        assert sentence in json.loads(text)["error"]


def test_the_page_itself_needs_the_token(server: PlayServer) -> None:
    for path in ("/", "/?token=", "/?token=wrong"):
        assert ask(server, path)[0] == 403


def test_a_tab_may_come_from_anywhere_but_a_frame_or_a_fetch_may_not(server: PlayServer) -> None:
    page = f"/?token={server.token}"
    tab = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert ask(server, page, **tab)[0] == 200
    assert ask(server, page, **{**tab, "Sec-Fetch-Dest": "iframe"})[0] == 403
    assert ask(server, page, **{**tab, "Sec-Fetch-Mode": "no-cors"})[0] == 403
    assert ask(server, "/decode", ASKED, **tab)[0] == 403


def test_its_own_page_is_answered(server: PlayServer) -> None:
    origin = f"http://localhost:{server.server_port}"
    headers = {"Origin": origin, "Host": f"localhost:{server.server_port}", "Sec-Fetch-Site": "same-origin"}
    status, answered, text = ask(server, "/decode", ASKED, **headers)
    assert status == 200
    assert answered["Access-Control-Allow-Origin"] is None
    kinds = [json.loads(line)["event"] for line in text.splitlines()]
    assert kinds[-1] == "end"
    assert kinds.count("answer") == 2


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("not JSON", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ({"prompt": 1, "sides": []}, "Expected `str`"),
        ({**ASKED, "other": 1}, "unknown field"),
        (b" " * (MOST_BODY + 1), "bytes"),
    ],
)
def test_what_is_no_request_gets_one_sentence(server: PlayServer, body: Any, sentence: str) -> None:
    status, _, text = ask(server, "/check", body)
    assert status == 400
    assert sentence in json.loads(text)["error"]


def test_bad_settings_are_answered_field_by_field(server: PlayServer) -> None:
    sides = [{"policy": "trim:keep=2"}, {"cache": "prefix"}]
    status, _, text = ask(server, "/decode", {**ASKED, "sides": sides})
    assert status == 422
    assert list(json.loads(text)["fields"]) == ["A.policy", "B.cache"]


def test_a_browser_that_goes_away_ends_the_decoding(server: PlayServer) -> None:
    body = json.dumps({**ASKED, "sides": [{"rule": "top_n:n=1"}] * 2, "max_new_tokens": "3000"}).encode()
    head = (
        f"POST /decode HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n{TOKEN_HEADER}: {server.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
        connection.sendall(head.encode() + body)
        while b'"event": "step"' not in connection.recv(1 << 16):
            pass
        assert server.session.under_way == 1
    deadline = time.monotonic() + 20
    while server.session.under_way and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.session.under_way == 0
