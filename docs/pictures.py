"""Draw the pictures of the README and the guide from real runs: ``make pictures``.

``fit.svg`` is what ``certus fit`` prints on the bundled example, ``report.png`` is the
report it writes, as Chromium shows it, and ``certify.svg`` is a Python session that
checks a scikit-learn model. Nothing is typed by hand: the commands run here. A test
compares the words in the pictures with what the commands print now.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.terminal_theme import TerminalTheme
from rich.text import Text

STATIC = Path(__file__).parent / "_static"
WIDTH = 80

SESSION = """\
import certus
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
X, y = load_breast_cancer(return_X_y=True)
model = LogisticRegression(max_iter=10_000).fit(X, y)  # no warning
print(certus.certify(model, X, y))
"""

# Quiet colours that read on this dark ground, whatever the page around it.
THEME = TerminalTheme(
    background=(24, 28, 32),
    foreground=(222, 226, 230),
    normal=[
        (24, 28, 32),
        (255, 138, 128),
        (108, 209, 155),
        (230, 180, 80),
        (127, 176, 230),
        (200, 160, 230),
        (120, 205, 205),
        (222, 226, 230),
    ],
)

# Rich's own frame loads a font from the network; this one uses what is installed.
FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"
  role="img" aria-label="TITLE">
<style>
  .{unique_id}-matrix {{
    font-family: ui-monospace, "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono",
      monospace;
    font-size: {char_height}px; line-height: {line_height}px;
  }}
{styles}
</style>
<rect width="{width}" height="{height}" rx="12" fill="#181c20"/>
<g transform="translate({terminal_x}, 22)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run_command(folder: str | Path, *args: str) -> Text:
    """Run ``certus`` in a folder and return what it prints, colours included."""
    code = "import sys; from certus.cli import main; sys.exit(main())"
    colours = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    shown = subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=folder,
        env=os.environ | colours | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        check=True,
    )
    return Text.from_ansi(shown.stdout.decode().rstrip())


def run_session(code: str) -> str:
    """Run Python lines and return what they print."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "session", "exec"), {})
    return printed.getvalue()


def draw(content: RenderableType, title: str, name: str) -> None:
    """Write one picture."""
    console = Console(
        record=True,
        width=WIDTH + 4,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
    )
    console.print(Padding(content, (0, 2)))
    drawing = console.export_svg(
        title=title,
        theme=THEME,
        code_format=FRAME.replace("TITLE", title),
        unique_id=f"certus-{name}",
    )
    # Rich clips each line, and the last one too tightly.
    drawing = re.sub(r' clip-path="[^"]*"', "", drawing)
    # Line by line, so that a change shows as one.
    drawing = drawing.replace("</text><text", "</text>\n<text")
    lines = [line.rstrip() for line in drawing.splitlines()]
    (STATIC / f"{name}.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")


# Two views of one page side by side: its beginning, and from the comparison on.
SPREAD = """\
<!DOCTYPE html><meta charset="utf-8">
<body style="margin:0;display:flex;background:#fdfdfb">
<iframe src="PAGE" style="border:0;width:50%;height:100vh"></iframe>
<iframe src="PAGE#comparison" style="border:0;width:50%;height:100vh"></iframe>
"""


def photograph(page: Path, name: str, width: int = 1520, height: int = 1066) -> None:
    """Write a picture of a page as Chromium shows it, with the words of the page."""
    from PIL import Image, PngImagePlugin

    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        sys.exit(f"{name}.png needs Chromium, which is not installed.")
    spread = page.with_name("spread.html")
    spread.write_text(SPREAD.replace("PAGE", page.name), encoding="utf-8")
    quiet = ("--disable-gpu", "--disable-background-networking", "--hide-scrollbars")
    subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            *quiet,
            f"--window-size={width},{height}",
            f"--screenshot={STATIC / name}.png",
            spread.as_uri(),
        ],
        capture_output=True,
        check=True,
    )
    picture = STATIC / f"{name}.png"
    shown = PngImagePlugin.PngInfo()
    shown.add_itxt("words", " ".join(sorted(words_of_page(page))), zip=True)
    with Image.open(picture) as drawn:
        drawn.save(picture, optimize=True, pnginfo=shown)


# ---- what a picture says ---------------------------------------------------------


def words(text: str) -> set[str]:
    """The words of a text, without the numbers, which differ between processors."""
    text = text.replace("within rounding of", "within 0 of")
    return set(re.findall(r"[^\W\d_]{3,}", text))


def words_of_drawing(name: str) -> set[str]:
    """The words that an SVG picture shows."""
    tree = ElementTree.parse(STATIC / f"{name}.svg")
    texts = tree.iter("{http://www.w3.org/2000/svg}text")
    return words(" ".join(part.text or "" for part in texts))


def words_of_photograph(name: str) -> set[str]:
    """The words of the page that a PNG picture shows the beginning of."""
    from PIL import Image

    with Image.open(STATIC / f"{name}.png") as picture:
        return set(str(picture.info["words"]).split())


def words_of_page(page: Path) -> set[str]:
    """The words of the headings of an HTML page, down to the comparison."""
    reader = _Headings()
    reader.feed(page.read_text(encoding="utf-8"))
    return words(" ".join(reader.found))


class _Headings(HTMLParser):
    """Collects the headings of the first two sections.

    Sentences depend on the numbers, and the figures on how fast the machine is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = self._sections = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._inside += tag in ("h1", "h2", "h3", "th")
        self._sections += tag == "h2"

    def handle_endtag(self, tag: str) -> None:
        self._inside -= tag in ("h1", "h2", "h3", "th")

    def handle_data(self, data: str) -> None:
        if self._inside and self._sections <= 2:
            self.found.append(data)


def main() -> None:
    """Draw all pictures."""
    STATIC.mkdir(exist_ok=True)
    prompt = Text("$ certus fit", style="bold")
    with tempfile.TemporaryDirectory() as folder:
        run_command(folder, "fit")  # fills the caches, as on any day but the first
        shown = run_command(folder, "fit")
        draw(Group(prompt, shown), "certus fit", "fit")
        photograph(Path(folder) / "diabetes.html", "report")
    code = "".join(f">>> {line}\n" for line in SESSION.splitlines())
    listing = Syntax(code.rstrip(), "pycon", theme="nord", background_color="default")
    session = Group(listing, Text(run_session(SESSION).rstrip()))
    draw(session, "certus.certify on a model of scikit-learn", "certify")


if __name__ == "__main__":
    main()
