"""The reports in a browser, at the widths of a phone and of a desktop, light and dark; needs Chromium."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest

from stansub.diagnostics.comparison import compare_draws
from stansub.report import render, run_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE, DESKTOP = 390, 1280
REPORTS = Path(__file__).parents[2] / "reports"
COMMITTED = ("flights", "linear", "poisson")
LEGIBLE = 4.5  # the contrast that the Web Content Accessibility Guidelines ask of text (level AA)

# Measures the document: what its contents need in width, the least contrast of a text, pictures without alt text.
PROBE = r"""
const linear = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const luminance = colour => colour.match(/[\d.]+/g).slice(0, 3)
  .reduce((sum, v, i) => sum + linear(Number(v)) * [0.2126, 0.7152, 0.0722][i], 0);
const ground = e => {
  for (; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)") return colour;
  }
  return "rgb(255, 255, 255)";
};
const contrast = e => {
  const [a, b] = [luminance(getComputedStyle(e).color), luminance(ground(e))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
};
const measure = d => ({
  width: d.documentElement.scrollWidth,
  ground: luminance(ground(d.body)),
  contrast: Math.min(...[...d.querySelectorAll("body *")].filter(e => e.getClientRects().length
    && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())).map(contrast)),
  pictures: d.images.length,
  silent: [...d.images].filter(i => !i.alt.trim()).map(i => i.outerHTML.slice(0, 80)),
});
"""
# Windows have a least width, frames have none.
FRAME = """<!doctype html><body style="margin:0"><iframe id="page" src="page.html" width="{width}" height="800"
style="border:0"></iframe><script>{probe}addEventListener("load", () => {{
const found = document.createElement("pre"); found.id = "found";
found.textContent = JSON.stringify(measure(document.getElementById("page").contentDocument));
document.body.append(found);
}});</script>"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)"),
]


def measured(folder: Path, page: str, *, width: int, dark: bool) -> dict[str, Any]:
    (folder / "page.html").write_text(page, encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.format(width=width, probe=PROBE), encoding="utf-8")
    assert CHROMIUM is not None
    command = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"),
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={max(width, 500)},900",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        (folder / "frame.html").as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-1000:]
    measurements: dict[str, Any] = json.loads(html.unescape(found[1]))
    return measurements


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    rng = np.random.default_rng(1)
    several = {"change": fakes.shifted(3.0), "size": 12}  # warnings and wide tables
    comparison = compare_draws(fakes.draws(rng, **several), fakes.reference(rng, size=12))
    return {
        "comparison": render.files(comparison)["report.html"].decode(),
        "run": run_page.html(fakes.draws(rng, **several), command="x " * 80),
        **{name: (REPORTS / name / "report.html").read_text(encoding="utf-8") for name in COMMITTED},
    }


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("name", ["comparison", "run", *COMMITTED])
def test_reports_fit_and_are_legible(name: str, width: int, dark: bool, pages: dict[str, str], tmp_path: Path) -> None:
    found = measured(tmp_path, pages[name], width=width, dark=dark)
    assert found["width"] <= width
    assert (found["ground"] < 0.1) is dark
    assert found["contrast"] >= LEGIBLE
    assert found["pictures"] > 0
    assert not found["silent"]


def test_the_measurements_see_what_is_wrong(tmp_path: Path) -> None:
    page = '<body><p style="width:900px;color:#bbb;background:#fff">text</p><img src="x.png"></body>'
    found = measured(tmp_path, page, width=PHONE, dark=False)
    assert found["width"] >= 900
    assert found["contrast"] < LEGIBLE
    assert len(found["silent"]) == 1
