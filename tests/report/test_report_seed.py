"""A report of the published figures that began all this, imported: it finds by itself what took weeks to notice."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "analysis"))
from seed_figures import AFTER_THE_FIX, PUBLISHED, path_of, summary

from unmask.evaluation.catalogue import metric_of
from unmask.report.gather import gather
from unmask.report.markdown import as_markdown
from unmask.report.page import as_page
from unmask.spec.recipe import Bounds, SuccessSpec
from unmask.store import Store
from unmask.store.foreign import import_tree

FILES = Path(__file__).parents[3] / "shared" / "data" / "seed_summaries"
CRITERIA = SuccessSpec(
    task="gsm8k",
    control="k1_first",
    candidates=("k2_*", "k3_*"),
    confirm=Bounds(speedup=1.2, drop=0.05),
)


def typed(folder: Path) -> Path:
    """The figures in the layout of the files they were published in."""
    for figure in PUBLISHED:
        file = folder / path_of(figure)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(summary(figure)))
    return folder


@pytest.fixture(scope="module", params=["files", "typed"])
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "files" and not FILES.exists():
        pytest.skip("the published files are not here; the typed figures are")
    place = tmp_path_factory.mktemp("seed")
    store = Store.at(place / "results")
    import_tree(FILES if request.param == "files" else typed(place / "typed"), store, "seed", metric_of)
    document = gather(store, [], ["seed"], CRITERIA)
    page = as_page(document)
    assert "Imported speed" in page
    assert 'id="flips"' not in page
    assert 'id="viewer"' not in page
    return as_markdown(document)


def test_it_leads_with_subsets_that_cannot_differ(text: str) -> None:
    before_the_verdict = text.split("## Verdict", 1)[0]
    assert "**Equal by construction: k2_first" in before_the_verdict


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        ("identical-results", "mmlu: 9 results"),
        ("speed-outlier", "gsm8k: k1_first ran at 22.75 tokens/s"),
        ("controls-differ", "controls that must be equal differ 2.18x"),
        ("subsets-within-error", "less than their error"),
        ("beyond-ceiling", "the criterion asks for more than 1.2x"),
        ("speed-and-ledger", "are slower than the controls"),
        ("too-few-samples", "minerva_math (limit 10): with 70 rows"),
        ("mixed-provenance", "uncommitted changes"),
    ],
)
def test_it_finds_what_the_authors_found_later(text: str, guard: str, words: str) -> None:
    found = text.split(f"(`{guard}`)", 1)[1].split("\n- **", 1)[0]
    assert words in found


def test_imported_figures_decide_nothing(text: str) -> None:
    assert "## Verdict\n\n**Undecided.** Imported figures cannot decide" in text
    assert "a timing run is needed" in text


def test_published_figures_are_in_the_table(text: str) -> None:
    table = text.split("### gsm8k, 1,319 rows", 1)[1].split("###", 1)[0]
    assert "| k1_first (control) | 80.4 (78.2 to 82.5) |" in table
    assert "| 5.33 h | 436,484 | 22.8 |" in table
    assert "| k2_first | 73.7 (71.2 to 76.0) | 6.7 (3.1 to 10.4) |" in table
    assert "Speed-up" not in table


def test_ten_rows_are_too_few_for_any_claim(tmp_path: Path) -> None:
    for figure in AFTER_THE_FIX:
        file = tmp_path / "typed" / path_of(figure)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(summary(figure)))
    store = Store.at(tmp_path / "results")
    import_tree(tmp_path / "typed", store, "postfix", metric_of)
    text = as_markdown(gather(store, [], ["postfix"]))
    assert "gsm8k (limit 10): with 10 rows only losses of" in text
