"""The committed reports in a real browser, opened from the disk."""

import shutil
from pathlib import Path

import chromium
import pytest

ROOT = Path(__file__).parents[2]
REPORTS = sorted(ROOT.glob("reports/*/index.html"))
SORT = """
  const images = [...document.images], rows = () => [...document.querySelector("table.sortable").tBodies[0].rows];
  const before = rows().map(row => row.textContent).join();
  document.querySelectorAll("table.sortable th button")[4].click();
  const numbers = rows().map(row => parseFloat(row.cells[4].dataset.sort)).filter(x => !isNaN(x));
  return {
    images: images.length,
    drawn: images.filter(image => image.complete && image.naturalWidth > 100).length,
    sorted: numbers.length > 0 && numbers.every((x, i) => i === 0 || numbers[i - 1] >= x),
    moved: rows().map(row => row.textContent).join() !== before,
  };
"""


@chromium.NEEDED
@pytest.mark.parametrize("width", [1300, 600, 360])
@pytest.mark.parametrize("page", REPORTS, ids=lambda page: page.parent.name)
def test_the_page_shows_its_figures_and_sorts_its_table(page, width, tmp_path):
    shutil.copytree(page.parent, tmp_path / "report", ignore=shutil.ignore_patterns("rollouts"))
    found = chromium.visit(tmp_path / "report/index.html", SORT, width)
    assert found["images"] == found["drawn"] >= 3
    assert found["wide"] <= 0
    assert found["sorted"]
    assert found["moved"]


def test_there_is_a_committed_report():
    assert ROOT / "reports/demo/index.html" in REPORTS
