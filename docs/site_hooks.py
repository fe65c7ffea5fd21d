"""What the site does beyond Markdown: drawings stand in the page, and links into the source become plain names.

mkdocs calls these functions. The pages themselves are plain Markdown, so that they read as well where there is no site.
"""

import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DRAWING = re.compile(r"!\[([^]]*)\]\((drawings/[\w-]+\.svg)\)")
CODE_IN_TABLE = re.compile(r"(?<=`)[^`\n]*\\\|[^`\n]*(?=`)")
LINK = re.compile(r"(?<!!)\[([^]]+)\]\(((?:\.\./)[^)]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A drawing is put into the page, where it follows the theme; what lies outside of docs/ is no page of the site."""
    # GitHub wants a bar in the code of a table escaped, and mkdocs wants it as it is.
    markdown = CODE_IN_TABLE.sub(lambda found: found[0].replace("\\|", "|"), markdown)
    markdown = DRAWING.sub(lambda found: drawing(found[2], found[1]), markdown)
    return LINK.sub(lambda found: f"{found[1]} (`{found[2].removeprefix('../')}`)", markdown)


def drawing(name: str, words: str) -> str:
    """The drawing as HTML, on lines without gaps, so that Markdown leaves it alone."""
    source = (HERE / name).read_text(encoding="utf-8").strip()
    lines = [line for line in source.splitlines() if line.strip()]
    lines[0] = lines[0].replace("<svg ", f'<svg class="drawing" role="img" aria-label="{words}" ', 1)
    return "<figure markdown='0'>\n" + "\n".join(lines) + "\n</figure>"
