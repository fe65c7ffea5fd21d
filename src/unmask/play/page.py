"""The page as one file: the report's colours, words and denoising viewer, and what is the page's own."""

from functools import lru_cache

from markupsafe import Markup

import unmask
from unmask.play.presets import PRESETS, questions
from unmask.play.settings import FIELDS, SIDES
from unmask.report.inline import embedded, joined, script_hash

STYLES = ("tokens", "layout", "tables", "figures", "samples", "viewer")
OWN_STYLES = ("play",)
SCRIPTS = ("base", "theme", "tips", "words", "viewer_model", "viewer_view")
OWN_SCRIPTS = ("race", "heat", "stage", "player", "form")


def as_page(model: str) -> str:
    """The whole page, which a browser can also keep: filled with a decoding, it needs no server."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("unmask.play", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    word_problems = questions()
    return environment.get_template("page.html").render(
        version=unmask.__version__,
        fields=FIELDS,
        sides=SIDES,
        presets=PRESETS,
        questions=word_problems,
        model=model,
        policy=security_policy(),
        style=Markup(joined("unmask.report", "css", STYLES) + joined("unmask.play", "css", OWN_STYLES)),
        script=Markup(_script()),
        data=embedded(
            {"presets": [preset._asdict() for preset in PRESETS], "questions": word_problems, "race": None}
        ),
    )


def security_policy() -> str:
    """What the page may do: run its own script and ask the server it came from."""
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script_hash(_script())}'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )


@lru_cache
def _script() -> str:
    return joined("unmask.report", "js", SCRIPTS) + "\n" + joined("unmask.play", "js", OWN_SCRIPTS)
