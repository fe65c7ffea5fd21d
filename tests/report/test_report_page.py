"""report.html without a browser: nothing is fetched, nothing escapes, and its size has a bound."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from invented_store import write_store

from unmask.report.document import Document
from unmask.report.gather import gather
from unmask.report.inline import embedded
from unmask.report.page import as_page
from unmask.report.samples import BUDGET, flips_of
from unmask.store import Store

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & #### {value}"


def document_of(store: Store, budget: int = BUDGET) -> Document:
    return with_flips(gather(store, ["05_invented"]), budget)


def with_flips(document: Document, budget: int = BUDGET) -> Document:
    tasks = [task for part in document.parts for task in part.tasks]
    return replace(document, flips=tuple(flips_of(tasks, budget)))


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self._in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data
        else:
            self.text.append(data)


@pytest.fixture(scope="module")
def page(document: Document) -> str:
    return as_page(with_flips(document))


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> str:
    store = write_store(
        tmp_path_factory.mktemp("evil"),
        rows=60,
        answer=EVIL,
        prompt="<script>alert(3)</script> {index} {other}",
    )
    return as_page(document_of(store))


def data_of(page: str) -> dict[str, Any]:
    return json.loads(Elements(page).scripts[0])


def test_no_address_is_in_the_page(page: str) -> None:
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#hatch)", page.replace("/*", ""), re.IGNORECASE)
    for name, attributes in Elements(page).found:
        assert "src" not in attributes
        href = attributes.get("href")
        assert href is None or href.startswith("#") or (name, href) == ("link", "data:,")


def test_every_link_has_its_place_and_every_name_is_given_once(page: str) -> None:
    elements = Elements(page).found
    names = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(names) == len(set(names))
    links = {str(attributes["href"])[1:] for name, attributes in elements if name == "a"}
    assert links <= set(names)


def test_answers_of_a_model_are_text(evil: str) -> None:
    elements = Elements(evil)
    assert len(elements.scripts) == 2, "the data and the program, nothing that a model wrote"
    assert not [name for name, attributes in elements.found if name == "img" or "onerror" in attributes]
    assert "alert(1)" not in elements.scripts[1]
    flips = data_of(evil)["flips"][0]
    assert flips["samples"][0][1].startswith("<script>alert(3)</script>")
    assert flips["configurations"][0]["flips"][0][2].startswith("</script><script>alert(1)</script>")


def test_texts_of_a_recipe_and_of_failures_are_text(page: str) -> None:
    elements = Elements(page)
    assert "Reusing layers is faster & loses <little>." in " ".join(elements.text)
    assert not [name for name, _ in elements.found if name in ("little", "out")]


def test_only_the_program_of_the_page_may_run(page: str) -> None:
    policy = next(a["content"] for n, a in Elements(page).found if n == "meta" and "http-equiv" in a)
    program = Elements(page).scripts[1]
    digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in str(policy)
    assert str(policy).startswith("default-src 'none'")


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "\u2028\u2029", "\x00", "\ud800"])
def test_embedded_data_survives(text: str) -> None:
    made = embedded({"text": text})
    assert "<" not in made
    assert json.loads(str(made)) == {"text": text}


def test_pictures_are_there(page: str) -> None:
    for name in ("frontier", "work", "ledger", "subjects", "timeline"):
        assert f'class="picture {name}"' in page
    assert page.count('<table class="heat">') == 5
    assert "CUDA error: &lt;out of memory&gt;" in page
    assert page.count("mark reuse dominated") > 0
    assert "threshold-curve" in page


def test_figures_of_the_table_are_there(page: str, document: Document) -> None:
    for line in document.parts[0].tasks[0].lines:
        assert (
            f'<td class="number" data-sort="{line.entry.value}">{line.entry.value * 100:.1f}<small>' in page
        )
    assert re.search(r'<th scope="row">k1_first <small>control</small></th>', page)


def test_ten_thousand_samples_keep_a_bounded_size(tmp_path: Path) -> None:
    long = "word " * 400 + "{value}"
    store = write_store(
        tmp_path, rows=10_000, configurations=["k1_first", "k3_first"], tasks=("arith",), answer=long
    )
    document = document_of(store, budget=1_000_000)
    page = as_page(document)
    assert len(page) < 2_500_000
    (flips,) = document.flips
    (found,) = flips["configurations"]
    assert found["total"] > 1000
    assert found["total"] == len(found["flips"]) + found["left_out"]
    assert len(found["flips"]) > 50
    shown = Elements(page)
    assert not any("word word" in text for text in shown.text), (
        "samples are data, put on the page a few at a time"
    )


def test_without_samples_and_attempts_the_page_is_still_whole(tmp_path: Path) -> None:
    store = write_store(tmp_path, rows=60, configurations=["k1_first", "k2_first"])
    for file in store.runs_folder.rglob("samples.jsonl"):
        file.unlink()
    page = as_page(document_of(store))
    assert 'id="flips"' not in page
    assert "Not paired" in page
