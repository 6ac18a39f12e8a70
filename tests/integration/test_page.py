"""The committed reports in a real browser, opened from the disk."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REPORTS = sorted(ROOT.glob("reports/*/index.html"))
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PROBE = """
<script>
addEventListener("load", () => {
  const images = [...document.images], rows = () => [...document.querySelectorAll("table.sortable tbody tr")];
  const before = rows().map(row => row.textContent).join();
  document.querySelectorAll("table.sortable th button")[4].click();
  const numbers = rows().map(row => parseFloat(row.cells[4].dataset.sort)).filter(x => !isNaN(x));
  const found = {
    images: images.length,
    drawn: images.filter(image => image.complete && image.naturalWidth > 100).length,
    wide: document.documentElement.scrollWidth - innerWidth,
    sorted: numbers.length > 0 && numbers.every((x, i) => i === 0 || numbers[i - 1] >= x),
    moved: rows().map(row => row.textContent).join() !== before,
    remote: performance.getEntriesByType("resource").filter(entry => !entry.name.startsWith("file:")).length,
  };
  document.title = JSON.stringify(found);
});
</script>
"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: `apt install chromium`")
@pytest.mark.parametrize("width", [1300, 600])
@pytest.mark.parametrize("page", REPORTS, ids=lambda page: page.parent.name)
def test_the_page_shows_its_figures_and_sorts_its_table(page, width, tmp_path):
    shutil.copytree(page.parent, tmp_path / "report")
    probe = tmp_path / "report/probe.html"
    probe.write_text(page.read_text() + PROBE)
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"]
    done = subprocess.run([*command, "--dump-dom", f"file://{probe}"], capture_output=True, text=True, timeout=120)
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title, done.stderr
    found = json.loads(title[1])
    assert found["images"] == found["drawn"] >= 3
    assert found["wide"] <= 0
    assert found["sorted"]
    assert found["moved"]
    assert found["remote"] == 0


def test_there_is_a_committed_report():
    assert ROOT / "reports/demo/index.html" in REPORTS
