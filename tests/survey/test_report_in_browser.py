"""The report page in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import ok
from tests.cli.runs import leave_draft
from tests.devices import on_mesh
from tests.survey.browser import CHROMIUM, DRIVER, MISSING, browser

import storax

pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=MISSING),
    pytest.mark.xdist_group("browser"),
]


CELLS = "[...document.querySelectorAll('#treemap .cell')]"
CELL_OF_LAYER_1 = f"{CELLS}.find(c => c.title.startsWith('params.layers.1\\n'))"
CIRCLES = "[...document.querySelectorAll('#steps svg circle')].filter(c => c.r.baseVal.value > 3.5)"
SMALLEST_TEXT = """
    const leaves = [...document.querySelectorAll("main *")].filter(e => e.children.length === 0);
    const seen = leaves.filter(e => e.textContent.trim() && e.getClientRects().length);
    return Math.min(...seen.map(e => parseFloat(getComputedStyle(e).fontSize)));
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run with a trace, sharded leaves, names that look like HTML, a draft."""
    where = tmp_path_factory.mktemp("page")
    layer = {
        "kernel": on_mesh(np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32), "data", "model"),
        "bias": on_mesh(np.zeros(32, np.float32)),
    }
    tree = {"params": {"layers": [layer, layer], "<b>bold</b>": np.ones(3000)}, "step": 7}
    options = storax.CheckpointManagerOptions(enable_async_checkpointing=False)
    with storax.CheckpointManager(where / "run", options=options) as manager:
        for step in (1, 2, 5):
            manager.save(step, args=storax.args.StandardSave(tree), metrics={"loss": 1 / step})
    leave_draft(where / "run", 6)
    storax.save(where / "other", tree, trace=where / "trace.json")
    ok("report", where / "run", "--values", "--trace", where / "trace.json", "-o", where / "r.html")
    return (where / "r.html").as_uri()


@pytest.fixture(scope="module")
def tab(page: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        driver.get(page)
        yield driver


def texts(tab: Any, selector: str) -> list[str]:
    return [found.text for found in tab.find_elements("css selector", selector)]


def names(tab: Any) -> list[str]:
    """Of the rows of the tree."""
    script = "return [...document.querySelectorAll('#tree .row:not(.head)')].map(r => r.title)"
    return tab.execute_script(script)


def click(tab: Any, script: str) -> None:
    tab.execute_script(f"{script}.click()")


def test_it_opens_without_a_complaint(tab: Any):
    assert tab.get_log("browser") == []
    assert tab.find_element("id", "title").text == "run, step 5"
    for section in ("steps", "map", "leaves", "processes", "traces"):
        assert tab.find_element("id", section).is_displayed(), section


def test_search_finds_leaves_and_marks_them(tab: Any):
    search = tab.find_element("id", "search")
    search.send_keys("kernel")
    assert [name for name in names(tab) if name.endswith("kernel")] == [
        "params.layers.0.kernel", "params.layers.1.kernel",
    ]  # fmt: skip
    assert "params.layers.0.bias" not in names(tab)
    assert "2 leaves found" in tab.find_element("id", "leaves").text
    assert texts(tab, "#tree mark") == ["kernel", "kernel"]
    search.clear()
    search.send_keys("/^params.*0.bias/")
    assert names(tab)[-1] == "params.layers.0.bias"
    search.clear()
    search.send_keys("x\b")
    assert "params.layers.0.bias" in names(tab)


def test_sorting_puts_the_largest_first(tab: Any):
    before = names(tab)
    tab.execute_script(
        "const s = document.getElementById('sort'); s.value = 'size'; s.dispatchEvent(new Event('change'))"
    )
    assert names(tab)[:2] == ["params", "params.<b>bold</b>"]
    tab.execute_script(
        "const s = document.getElementById('sort'); s.value = 'tree'; s.dispatchEvent(new Event('change'))"
    )
    assert names(tab) == before


def test_folding_and_unfolding(tab: Any):
    click(tab, "document.getElementById('fold')")
    assert names(tab) == ["params", "step"]
    click(tab, "document.getElementById('unfold')")
    assert len(names(tab)) == 2 + 2 + 2 + 4


def test_the_treemap_zooms_in_and_out(tab: Any):
    def cells() -> list[str]:
        return tab.execute_script(f"return {CELLS}.map(c => c.title.split('\\n')[0])")

    everything = cells()
    assert "params.layers.1.kernel" in everything
    click(tab, CELL_OF_LAYER_1)
    assert set(cells()) == {"params.layers.1.kernel", "params.layers.1.bias"}
    assert texts(tab, ".crumbs button") == ["all", "params", "layers", "1"]
    click(tab, "document.querySelector('.crumbs button')")
    assert cells() == everything


def test_areas_of_the_treemap_are_as_the_bytes(tab: Any):
    click(tab, CELL_OF_LAYER_1)
    area = tab.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('#treemap .cell')]"
        ".map(c => [c.title.split('\\n')[0], c.offsetWidth * c.offsetHeight]))"
    )
    click(tab, "document.querySelector('.crumbs button')")
    ratio = area["params.layers.1.kernel"] / area["params.layers.1.bias"]
    assert ratio == pytest.approx(64, rel=0.1)


def test_a_leaf_shows_its_shards_chunks_writer_and_histogram(tab: Any):
    click(tab, "[...document.querySelectorAll('#tree .row')].find(r => r.title === 'params.layers.0.kernel')")
    panel = tab.find_element("id", "leaf").text
    for text in (
        "float32[64,32]",
        "P(data, model) over data=4 model=2",
        "8 of [16, 16]",
        "process 0",
        "mean",
    ):
        assert text in panel
    assert len(tab.find_elements("css selector", "#leaf svg:not(.histogram) rect")) == 8
    assert len(tab.find_elements("css selector", "#leaf svg.histogram rect")) == 40


def test_names_are_texts_not_html(tab: Any):
    click(tab, "[...document.querySelectorAll('#tree .row')].find(r => r.title.includes('bold'))")
    assert tab.find_element("css selector", "#leaf h2").text == "params.<b>bold</b>"
    assert tab.find_elements("css selector", "#page b b, #leaf h2 b") == []


def test_the_run_is_drawn(tab: Any):
    circles = tab.execute_script(f"return {CIRCLES}.length")
    assert circles == 4
    rows = texts(tab, "#steps tbody tr")
    assert len(rows) == 4
    assert "newest" in rows[2]
    assert "dead draft" in rows[3]
    ends = tab.execute_script(
        "const svg = document.querySelector('#steps svg'), right = svg.getBoundingClientRect().right;"
        "return [...svg.querySelectorAll('text')].map((t) => t.getBoundingClientRect().right - right)"
    )
    assert len(ends) > 4
    assert max(ends) <= 0, "a label is cut off at the right"


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1200, True)])
def test_it_fits_a_phone_and_the_dark(page: str, tmp_path: Path, width: int, dark: bool):
    with browser(tmp_path, width=width, dark=dark) as tab:
        tab.get(page)
        assert tab.get_log("browser") == []
        assert tab.execute_script("return document.documentElement.scrollWidth") <= width
        lightness = tab.execute_script(
            "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
        )
        assert (max(lightness) < 60) == dark
        smallest = tab.execute_script(SMALLEST_TEXT)
        assert smallest >= 11


def test_nothing_scrolls_when_a_leaf_is_chosen(tab: Any):
    tab.execute_script("window.scrollTo(0, 0)")
    click(tab, "[...document.querySelectorAll('#tree .row')].find(r => r.title === 'params.layers.1.kernel')")
    assert tab.execute_script("return window.scrollY") == 0
