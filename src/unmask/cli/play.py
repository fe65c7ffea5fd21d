"""`unmask play`: a page of this machine on which two settings decode one question side by side."""

import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from unmask.cli.options import CheckpointOptions, checkpoint_options
from unmask.cli.screen import load_with_bar, say
from unmask.errors import UnmaskError

PAGE = '<!doctype html><meta http-equiv="refresh" content="0; url={address}"><a href="{address}">Unmask</a>\n'
"""Leads a browser to the page: its address, which holds the token, is nobody's to read in a list of processes."""


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Port of the loopback. [a free one]",
)
@click.option("--no-browser", is_flag=True, help="Print the address and open nothing.")
@checkpoint_options
def play(port: int, no_browser: bool, **flags: object) -> None:
    """Watch two settings decode one question side by side, in a browser.

    The page shows the blocks while they are unmasked, counts forwards, computed layer rows and seconds of both sides,
    marks where the answers differ, and saves all of it as one file that needs no server. Each side takes its own
    checkpoint, policy, unmasking rule and decode settings. The server listens on this machine only, and its address
    holds a token. Ctrl-C ends it.

    \b
    Examples:
      unmask play
      unmask play --model path/to/checkpoint --port 8765 --no-browser
    """
    options = CheckpointOptions.taken_from(flags)
    options.opened()  # what is wrong with it is said now, not in the browser

    from unmask.model.device import choose_device, choose_dtype
    from unmask.play.server import PlayServer, serve
    from unmask.play.session import Loading, Session

    choose_dtype(options.dtype, choose_device(options.device))
    loading = Loading(
        options.model,
        lambda checkpoint, mask_token: load_with_bar(checkpoint, options.device, options.dtype, mask_token),
        options.revision,
        options.mask_token_id,
    )
    try:
        server = PlayServer(Session(loading), port)
    except OSError as error:
        raise UnmaskError(
            f"Port {port} cannot be listened on ({error.strerror}); choose another --port, or none for a free one."
        ) from None
    say(f"Open {server.address} in a browser of this machine; Ctrl-C ends it.")
    with _opened(server.address, no_browser), contextlib.suppress(KeyboardInterrupt):
        serve(server)
    say("Ended.", err=True)


@contextmanager
def _opened(address: str, no_browser: bool) -> Iterator[None]:
    """Lead a browser to an address by a file that nobody else can read."""
    if no_browser:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="unmask-play-") as folder:
        page = Path(folder) / "play.html"
        page.write_text(PAGE.format(address=address), encoding="utf-8")
        click.launch(str(page))
        yield
