"""Pages in headless Chromium, opened from the disk, with a script that tries them and says what it found."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDED = pytest.mark.skipif(BROWSER is None, reason="no Chromium here: `apt install chromium`")
# The window of a headless browser is at least 500 pixels wide; a frame may be as narrow as a telephone.
FRAME = """<!doctype html><title>nothing</title><body style="margin: 0">
<script>addEventListener("message", event => {{ document.title = JSON.stringify(event.data); }});</script>
<iframe style="border: 0; width: {width}px; height: 900px" src="{name}"></iframe>"""
PROBE = """<script>addEventListener("load", async () => {{
const until = async done => {{ while (!done()) await new Promise(resolve => setTimeout(resolve, 20)); }};
const found = await (async () => {{ {script} }})();
found.wide = document.documentElement.scrollWidth - innerWidth;
found.remote = performance.getEntriesByType("resource").filter(entry => !entry.name.startsWith("file:")).length;
parent.postMessage(found, "*");
}});</script>"""


def visit(page: Path, script: str, width: int = 1300, link: str = "") -> dict:
    """Return what ``script``, the body of an async function in ``page``, returns.

    Nothing may be said on the console. ``wide``: by how many pixels the page is wider than its frame.
    """
    probe, frame = page.with_name("probe.html"), page.with_name("frame.html")
    probe.write_text(page.read_text() + PROBE.format(script=script))
    frame.write_text(FRAME.format(width=width, name=f"probe.html{link}"))
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += ["--virtual-time-budget=20000", f"--window-size={max(width, 500)},900", "--dump-dom", f"file://{frame}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not console, console
    assert title[1] != "nothing", done.stderr
    found = json.loads(title[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))
    assert found["remote"] == 0
    return found
