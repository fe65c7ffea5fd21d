"""Serves the page to this machine's own browser, and to nobody else; knows addresses and a session.

It listens on the loopback only. Every request must carry the token of the address, name this server as its host (a
foreign name may be made to point here) and, where a browser tells, come from this page itself. A decoding is one
answer of many lines, each a JSON object; it ends when the page closes its end, which is all that stopping takes.
"""

import hmac
import json
import secrets
import select
import socket
import sys
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from unmask.errors import UnmaskError
from unmask.play.page import as_page, security_policy
from unmask.play.session import Event, Session
from unmask.play.settings import FieldsRefused, Question
from unmask.reading import printable
from unmask.store.redaction import redacted

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost")
TOKEN_HEADER = "X-Unmask-Token"
MOST_BODY, MOST_DROPPED, CHUNK = 1 << 20, 16 << 20, 1 << 16
"""Bytes of a request that are read, of one that are read and forgotten, and at a time."""
MOST_DIGITS = 16
PATIENCE = 60.0
"""Seconds that a browser may take to send or to read something."""


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request."""

    prompt: str
    sides: list[dict[str, str]]
    chat: bool = False
    max_new_tokens: str = ""

    @property
    def question(self) -> Question:
        """What both sides are asked."""
        return Question(self.prompt, self.chat, self.max_new_tokens)


class PlayServer(ThreadingHTTPServer):
    """Listens on a port of the loopback; 0 takes a free one."""

    daemon_threads = True

    def __init__(self, session: Session, port: int = 0) -> None:
        self.session = session
        self.token = secrets.token_urlsafe(24)
        super().__init__((LOOPBACK, port), Handler)

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (the base's signature)
        """A browser that goes away in the middle is nothing to tell of; anything else is."""
        error = sys.exception()
        if not isinstance(error, OSError):
            print(_sentence_of(error), file=sys.stderr)


class Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: PlayServer
    server_version = "unmask"
    sys_version = ""
    timeout = PATIENCE
    _unread = 0

    def do_GET(self) -> None:
        """Give the page, whose address holds the token."""
        address = urlsplit(self.path)
        given = parse_qs(address.query).get("token", [""])[0]
        if address.path == "/favicon.ico":
            self._refuse(HTTPStatus.NOT_FOUND, "There is no icon.")
        elif self._allowed(given):
            if address.path == "/":
                self._send(
                    HTTPStatus.OK, "text/html; charset=utf-8", as_page(self.server.session.loading.model)
                )
            else:
                self._refuse(HTTPStatus.NOT_FOUND, "There is nothing here; open the address with its token.")

    def do_POST(self) -> None:
        """Check settings, or decode under them."""
        length = self.headers.get("Content-Length", "")
        self._unread = (
            min(int(length), MOST_DROPPED) if length.isdecimal() and len(length) < MOST_DIGITS else 0
        )
        if not self._allowed(self.headers.get(TOKEN_HEADER, "")):
            return
        try:
            request = self._body()
            if self.path == "/check":
                self.server.session.check(request.question, list(request.sides))
                self._send_json(HTTPStatus.OK, {"fields": {}})
            elif self.path == "/decode":
                self._tell(self.server.session.race(request.question, list(request.sides)))
            else:
                self._refuse(HTTPStatus.NOT_FOUND, "There is nothing here.")
        except FieldsRefused as refused:
            fields = {name: _shown(sentence) for name, sentence in refused.sentences.items()}
            self._send_json(HTTPStatus.UNPROCESSABLE_ENTITY, {"fields": fields})
        except UnmaskError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))

    def _allowed(self, token: str) -> bool:
        """Whether the page itself asks; what is refused is answered here."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        ours = [f"{name}:{self.server.server_port}" for name in HOSTS]
        same_site = self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        if host not in ours:
            self._refuse(HTTPStatus.FORBIDDEN, "This server answers under its own address only.")
        elif origin not in (None, f"http://{host}") or not (same_site or self._opens_a_tab()):
            self._refuse(HTTPStatus.FORBIDDEN, "This server answers its own page only.")
        elif not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(
                HTTPStatus.FORBIDDEN, "The token is wrong; open the address that `unmask play` printed."
            )
        else:
            return True
        return False

    def _opens_a_tab(self) -> bool:
        """Whether a whole tab comes here, by a link or a file that leads here: no other page sees what it is shown."""
        how = self.headers.get("Sec-Fetch-Mode"), self.headers.get("Sec-Fetch-Dest")
        return self.command == "GET" and how == ("navigate", "document")

    def _body(self) -> Asked:
        if self.headers.get_content_type() != "application/json":
            raise UnmaskError("The page must send JSON.")
        if self._unread > MOST_BODY:
            raise UnmaskError(f"A request has more than {MOST_BODY} bytes; send less.")
        length, self._unread = self._unread, 0
        try:
            return msgspec.json.decode(self.rfile.read(length), type=Asked)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UnmaskError(f"The request cannot be read ({error}).") from None

    def _tell(self, events: Iterator[Event]) -> None:
        """Send the events of a decoding as they happen, until its end or the page's."""
        self._head(HTTPStatus.OK, "application/x-ndjson")
        try:
            for event in events:
                if self._page_is_gone():
                    return
                self.wfile.write(json.dumps(event, ensure_ascii=False).encode() + b"\n")
        except UnmaskError as error:
            self._say_last(_shown(str(error)))
        except OSError:
            return
        except Exception as error:
            self._say_last(_sentence_of(error))
        finally:
            getattr(events, "close", lambda: None)()

    def _say_last(self, sentence: str) -> None:
        self.wfile.write(json.dumps({"event": "failed", "side": None, "sentence": sentence}).encode() + b"\n")

    def _page_is_gone(self) -> bool:
        """Whether the browser has closed the connection: then there is something to read, and it is nothing."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self._send_json(status, {"error": _shown(sentence)})

    def _send_json(self, status: HTTPStatus, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value))

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self._drop_the_rest()
        self._head(status, kind, len(body))
        self.wfile.write(body)

    def _drop_the_rest(self) -> None:
        """Read what was sent and not asked for: a connection that is closed on unread bytes loses the answer."""
        while self._unread > 0:
            chunk = self.rfile.read(min(self._unread, CHUNK))
            self._unread = self._unread - len(chunk) if chunk else 0

    def _head(self, status: HTTPStatus, kind: str, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Content-Security-Policy", f"{security_policy()}; frame-ancestors 'none'")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's signature)
        """Write nothing: the first line of a request holds the token."""


def _shown(sentence: str) -> str:
    return printable(redacted(sentence))


def _sentence_of(error: BaseException | None) -> str:
    return _shown(" ".join(f"Unmask failed unexpectedly ({type(error).__name__}: {error}).".split()))


def serve(server: PlayServer) -> None:
    """Answer requests until interrupted; decodings that are under way end at their next step."""
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        server.session.close()
        server.server_close()
