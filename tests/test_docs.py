"""Documents tell the truth that can be checked: every local link leads somewhere, every verb is named."""

import re
from pathlib import Path

import pytest

from unmask.cli.group import VERBS

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("src/unmask/assets/*/README.md"),
    ]
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_local_links_exist(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_in_the_changelog(verb: str) -> None:
    assert f"unmask {verb}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
