"""Documents tell the truth that can be checked: links lead somewhere, commands and examples are understood, and what
exists is documented."""

import ast
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import pytest

import unmask
from unmask.analysis.guards import GUARDS
from unmask.cli.group import VERBS, app
from unmask.report.tables import COLUMNS
from unmask.spec.family import FAMILIES, EstimatorName, Family
from unmask.spec.policy import AnyPolicySpec
from unmask.spec.recipe import Recipe
from unmask.spec.rule import AnyRuleSpec

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *DOCS.glob("*.md"),
        *ROOT.glob("src/unmask/assets/*/README.md"),
    ]
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks(*languages: str) -> list[Any]:
    """The code blocks of all documents in these languages."""
    return [
        pytest.param(code, id=f"{name_of(document)}-{number}")
        for document in DOCUMENTS
        for number, (language, code) in enumerate(FENCE.findall(text_of(document)))
        if language in languages
    ]


def anchors(document: Path) -> set[str]:
    """What a link may name behind #: headings in lower case, words joined by dashes."""
    headings = HEADING.findall(FENCE.sub("", text_of(document)))
    plain = [re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings]
    return {re.sub(r"\s", "-", heading) for heading in plain}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_local_links_exist(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text_of(document))):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        place = document.parent / file if file else document
        assert place.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in anchors(place), f"{document.name} links to {target}"


@pytest.mark.parametrize("code", blocks("python"))
def test_python_is_python(code: str) -> None:
    ast.parse(code)


@pytest.mark.parametrize("code", blocks("toml"))
def test_toml_is_toml_and_whole_recipes_are_recipes(code: str) -> None:
    document = tomllib.loads(code)
    if {"name", "model", "tasks"} <= document.keys():
        msgspec.convert(document, Recipe)


@pytest.mark.parametrize("code", blocks("json"))
def test_json_is_json(code: str) -> None:
    json.loads(code)


def commands() -> Iterator[Any]:
    """Every line of a document that calls unmask."""
    for document in DOCUMENTS:
        for number, (language, code) in enumerate(FENCE.findall(text_of(document))):
            for line in code.splitlines():
                if language == "console" and (found := re.match(r"\$ (unmask [^|]+)", line)):
                    yield pytest.param(found[1], id=f"{name_of(document)}-{number}-{found[1]}")


@pytest.mark.parametrize("line", list(commands()))
def test_commands_have_verbs_and_options_that_exist(line: str) -> None:
    _, verb, *words = shlex.split(line, comments=True)
    if verb.startswith("-"):
        return
    command = app.get_command(click.Context(app), verb)
    assert command is not None, line
    if "--help" not in words:
        parser = command.make_parser(click.Context(command, info_name=verb))
        values, left, _ = parser.parse_args(list(words))
        assert not left, line
        required = {param.name for param in command.params if param.required and param.nargs == 1}
        assert required <= {name for name, value in values.items() if value}, line


def test_pages_made_of_the_source_are_up_to_date_and_explain_everything() -> None:
    sys.path.insert(0, str(DOCS))
    try:
        from generate import PAGES, RECIPE_PARTS
    finally:
        sys.path.remove(str(DOCS))
    for name, page in PAGES.items():
        made = page()
        assert text_of(DOCS / name) == made, "run `python docs/generate.py`"
        assert [line for line in made.splitlines() if line.endswith("|  |")] == []
    assert set(tables_of(Recipe)) == set(RECIPE_PARTS) - {"DecodeSpec"}


def tables_of(kind: Any) -> Iterator[str]:
    """The names of all structs that a recipe is made of."""
    if hasattr(kind, "__struct_fields__"):
        yield kind.__name__
        for field in msgspec.structs.fields(kind):
            yield from tables_of(field.type)
    else:
        for part in get_args(kind):
            yield from tables_of(part)


def test_the_changelog_has_no_item_twice() -> None:
    items = re.findall(r"^- .*(?:\n  .*)*", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert [item for item in items if items.count(item) > 1] == []


@pytest.mark.parametrize("name", sorted({*unmask.__all__, *unmask.lab.__all__} - {"lab"}))
def test_every_exported_name_is_explained(name: str) -> None:
    assert name in headings("api.md")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_option_is_documented(verb: str) -> None:
    assert f"unmask {verb}" in text_of(ROOT / "CHANGELOG.md")
    section = re.search(rf"^### unmask {verb}$(.*?)(?=^##|\Z)", text_of(DOCS / "commands.md"), re.M | re.S)
    assert section
    command = app.get_command(click.Context(app), verb)
    assert command is not None
    for option in (name for param in command.params for name in param.opts if name.startswith("--")):
        assert option in section[1]


def headings(page: str) -> list[str]:
    return [heading.strip("`") for heading in HEADING.findall(text_of(DOCS / page))]


def tag(spec: Any) -> str:
    return str(spec.__struct_config__.tag)


@pytest.mark.parametrize("policy", list(map(tag, get_args(AnyPolicySpec))))
def test_every_policy_has_a_heading(policy: str) -> None:
    assert policy in headings("policies.md")
    assert f"Policy `{policy}" in headings("recipe.md")


@pytest.mark.parametrize("rule", list(map(tag, get_args(AnyRuleSpec))))
def test_every_rule_has_a_heading(rule: str) -> None:
    assert rule in headings("decoder.md")
    assert f"Rule `{rule}" in headings("recipe.md")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_heading_and_says_how_it_is_scored(family: str) -> None:
    assert family in headings("families.md")
    assert f"`{family}`" in text_of(DOCS / "concepts.md")


def test_every_field_of_a_family_is_explained() -> None:
    rows = " ".join(re.findall(r"^\| (`.+?) \|", text_of(DOCS / "families.md"), re.MULTILINE))
    assert [field for field in Family.__struct_fields__ if f"`{field}`" not in rows] == []


@pytest.mark.parametrize("estimator", get_args(EstimatorName))
def test_every_estimator_has_a_heading_and_names_its_families(estimator: str) -> None:
    assert estimator in headings("scoring.md")
    row = re.search(rf"^\| `{estimator}` \| (.+?) \|", text_of(DOCS / "scoring.md"), re.MULTILINE)
    assert row
    able = {name for name, family in FAMILIES.items() if estimator in family.estimators}
    named = set(re.findall(r"`(\w+)`", row[1]))
    assert named == (set(FAMILIES) - able if row[1].startswith("all but") else able if named else set())
    assert named or able == set(FAMILIES)


def test_the_readme_names_everything_that_can_be_chosen() -> None:
    specs = [tag(spec) for union in (AnyPolicySpec, AnyRuleSpec) for spec in get_args(union)]
    named = {*FAMILIES, *get_args(EstimatorName), *specs} - {"full", "custom"}
    readme = text_of(ROOT / "README.md")
    assert sorted(name for name in named if f"`{name}`" not in readme) == []


@pytest.mark.parametrize("guard", [guard.name for guard in GUARDS])
def test_every_guard_has_a_row(guard: str) -> None:
    assert f"| `{guard}` |" in text_of(DOCS / "analysis.md")


@pytest.mark.parametrize("column", sorted({column.heading.partition(" vs ")[0] for column in COLUMNS}))
def test_every_column_has_a_row(column: str) -> None:
    assert f"| {column} |" in text_of(DOCS / "analysis.md")


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = text_of(ROOT / "mkdocs.yml").partition("nav:")[2]
    assert sorted(re.findall(r"([\w-]+\.md)", navigation)) == sorted(page.name for page in DOCS.glob("*.md"))


@pytest.mark.parametrize("picture", sorted(DOCS.glob("pictures/*")), ids=lambda picture: picture.name)
def test_pictures_are_small_and_used(picture: Path) -> None:
    assert picture.stat().st_size < 150_000
    assert any(f"pictures/{picture.name}" in text_of(document) for document in DOCUMENTS)
