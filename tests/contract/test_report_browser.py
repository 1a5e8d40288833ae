"""The report in a real browser: no errors, no requests, nothing cut off or too wide.

Chromium opens each page in a frame of a given width; a script of the test, not of the
page, measures what it sees and writes the result where ``--dump-dom`` shows it.
"""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.ensemble import RandomForestClassifier

import certus
from certus.language import LanguageModel
from certus.linear_model import LogisticRegression, Ridge
from certus.report import text_report
from certus.tables import TablePipeline, load_example

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium")

MEASURE = """
<!DOCTYPE html><meta charset="utf-8"><title>measure</title>
<body style="margin:0">
<iframe id="f" src="PAGE" style="border:0;width:WIDTHpx;height:900px"></iframe>
<pre id="found"></pre><script>
document.getElementById("f").onload = event => {
  const page = event.target.contentDocument, root = page.documentElement;
  const all = (node, what) => [...node.querySelectorAll(what)];
  const shown = all(page, "svg").filter(s => s.getClientRects().length);
  const outside = [], touching = [];
  for (const svg of shown) {
    const frame = svg.getBoundingClientRect();
    const texts = all(svg, "text").map(t => [t.textContent, t.getBoundingClientRect()]);
    for (const [words, box] of texts)
      if (box.left < frame.left - 1.5 || box.right > frame.right + 1.5 ||
          box.top < frame.top - 1.5 || box.bottom > frame.bottom + 1.5)
        outside.push(words);
    texts.forEach(([one, a], i) => texts.slice(i + 1).forEach(([two, b]) => {
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4)
        touching.push(one + " / " + two);
    }));
  }
  const scale = s => s.getBoundingClientRect().width / s.viewBox.baseVal.width;
  const size = t => getComputedStyle(t).fontSize;
  document.getElementById("found").textContent = JSON.stringify({
    wide: root.scrollWidth - root.clientWidth,
    drawings: shown.map(s => s.className.baseVal),
    outside, touching,
    open: all(page, "details.part").map(d => d.lastElementChild.checkVisibility()),
    ground: getComputedStyle(page.body).backgroundColor,
    sizes: [...new Set(shown.flatMap(s => all(s, "text")).map(size))],
    scale: Math.min(...shown.map(scale)),
  });
};
</script>
"""


def run(*options: str) -> subprocess.CompletedProcess[str]:
    fixed = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    quiet = ("--disable-background-networking", "--disable-component-update")
    return subprocess.run(
        [str(BROWSER), *fixed, *quiet, "--enable-logging=stderr", *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def measure(page: Path, width: int, *options: str) -> dict[str, Any]:
    """What the browser sees of a page in a frame of that width."""
    probe = page.with_name(f"probe-{page.stem}-{width}.html")
    content = MEASURE.replace("PAGE", page.name).replace("WIDTH", str(width))
    probe.write_text(content, encoding="utf-8")
    log = page.with_name(f"{probe.stem}.json")
    done = run(
        "--allow-file-access-from-files",
        "--window-size=1500,900",
        "--virtual-time-budget=4000",
        f"--log-net-log={log}",
        "--dump-dom",
        *options,
        probe.as_uri(),
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None and found[1], done.stdout[-2000:]
    seen: dict[str, Any] = json.loads(unescape(found[1]))
    seen["console"] = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    seen["requests"] = requests(log)
    return seen


def requests(log: Path) -> list[str]:
    """Addresses the pages asked for; the browser's own errands come from no file."""
    events = json.loads(log.read_text(encoding="utf-8"))["events"]
    asked = [event.get("params", {}) for event in events]
    return [call["url"] for call in asked if call.get("initiator") == "file://"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Regression with a comparison, two labels, ten labels, hostile names."""
    folder = tmp_path_factory.mktemp("pages")
    frame, target = load_example()
    X, y = frame.drop(target), frame[target]
    found = certus.compare(X, y, models=[Ridge()])
    certus.audit(found.model, X, y, comparison=found, random_state=0).to_html(
        folder / "compared.html"
    )
    A, b = load_breast_cancer(return_X_y=True)
    model = LogisticRegression().fit(A[:400] / A.std(axis=0), b[:400])
    A = A / A.std(axis=0)
    parts = {"X": A[:400], "y": b[:400], "X_test": A[400:], "y_test": b[400:]}
    certus.audit(model, **parts, random_state=0).to_html(folder / "binary.html")
    A, b = load_digits(return_X_y=True)
    forest = RandomForestClassifier(10, random_state=0).fit(A[:900], b[:900])
    parts = {"X": A[:900], "y": b[:900], "X_test": A[900:], "y_test": b[900:]}
    certus.audit(forest, **parts, random_state=0).to_html(folder / "digits.html")
    A, b = load_diabetes(return_X_y=True)
    names = ["a" * 300, "two words " * 20, "<script>alert(1)</script>", "ж" * 80]
    odd = pl.DataFrame({name: A[:, i] for i, name in enumerate(names)})
    wide = pl.Series("t" * 200, 1e9 * b)
    model = TablePipeline(estimator=Ridge()).fit(odd, wide)
    certus.audit(model, odd, wide, random_state=0).to_html(folder / "hostile.html")
    return folder


NAMES = ("compared", "binary", "digits", "hostile")


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", NAMES)
def test_page_is_quiet_and_fits(pages: Path, name: str, width: int) -> None:
    seen = measure(pages / f"{name}.html", width)
    assert seen["console"] == []
    assert seen["requests"] == []
    assert seen["wide"] <= 0, "the page scrolls sideways"
    assert set(seen["drawings"]) == {"narrow" if width == 400 else "wide"}
    assert 3 <= len(seen["drawings"]) <= 5
    assert seen["outside"] == [], "text leaves its drawing"
    assert seen["touching"] == [], "text lies on text"
    assert seen["sizes"] == ["13px"] and seen["scale"] >= 0.95, "too small to read"
    assert len(seen["open"]) >= 4 and not any(seen["open"]), "details are folded"


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_of_a_text_is_quiet_and_fits(tmp_path: Path, width: int) -> None:
    pytest.importorskip("torch")
    small = {"n_layers": 2, "width": 16, "heads": 2, "context": 16, "max_iter": 2}
    model = LanguageModel(**small, random_state=0).fit("to be or not to be " * 9)
    odd = "<script>alert(1)</script>" + "long" * 60 + "\x00 & \u202e ж\n"
    text_report(model, odd).to_html(tmp_path / "text.html")
    seen = measure(tmp_path / "text.html", width)
    assert seen["console"] == [] and seen["wide"] <= 0
    assert all(place.startswith("data:image/png") for place in seen["requests"])
    assert set(seen["drawings"]) == {"map", "narrow" if width == 400 else "wide"}
    assert seen["outside"] == [], "text leaves its drawing"
    assert len(seen["open"]) == 4 and not any(seen["open"]), "details are folded"


def test_dark_mode_follows_the_setting_of_the_reader(pages: Path) -> None:
    page = pages / "compared.html"
    light = measure(page, 1400, "--blink-settings=preferredColorScheme=1")
    dark = measure(page, 1400, "--blink-settings=preferredColorScheme=0")
    shades = [sum(map(int, re.findall(r"\d+", s["ground"])[:3])) for s in (light, dark)]
    assert shades[0] > 700 and shades[1] < 120


def test_details_are_open_in_print(pages: Path) -> None:
    """The print style on a screen, as a script cannot look at paper."""
    text = (pages / "compared.html").read_text(encoding="utf-8")
    assert "@media print" in text
    paper = pages / "paper.html"
    paper.write_text(
        text.replace("@media print", "@media all").replace("media screen", "media tty"),
        encoding="utf-8",
    )
    seen = measure(paper, 700)
    assert len(seen["open"]) >= 4 and all(seen["open"])
    assert seen["wide"] <= 0 and set(seen["drawings"]) == {"wide"}
    printed = pages / "paper.pdf"
    run(f"--print-to-pdf={printed}", (pages / "compared.html").as_uri())
    assert printed.read_bytes()[:5] == b"%PDF-" and printed.stat().st_size > 20_000


def test_the_probe_can_fail(pages: Path) -> None:
    """A page that shouts, loads and overflows is seen to do so."""
    bad = pages / "bad.html"
    bad.write_text(
        '<!DOCTYPE html><div style="width:3000px">x</div><svg viewBox="0 0 9 9" '
        'width="99"><text x="0" y="9">cut off here</text><text x="0" y="9">too</text>'
        '</svg><img src="http://example.invalid/a.png"><script>console.error("no")'
        "</script>",
        encoding="utf-8",
    )
    seen = measure(bad, 400)
    assert seen["wide"] > 0 and seen["console"] and seen["requests"]
    assert seen["outside"] and seen["touching"]
