"""Draw the pictures of the README from real runs: ``make pictures``.

``fit.svg`` is what ``certus fit`` prints on the bundled example, ``report.png`` the
report it writes, as Chromium shows it; ``certify.svg`` is a Python session that
certifies a model of scikit-learn. Nothing in them is retyped: the commands run here.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

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
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
<rect width="{width}" height="{height}" rx="12" fill="#181c20"/>
<g transform="translate({terminal_x}, 22)"
  clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run_command(folder: str, *args: str) -> Text:
    """Run ``certus`` in a folder and return what it prints, colours included."""
    code = "import sys; from certus.cli import main; sys.exit(main())"
    colours = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    # Once to fill the caches, as on any day but the first.
    for _ in range(2):
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
    """Write a picture of a page as Chromium shows it."""
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


def main() -> None:
    """Draw all pictures."""
    STATIC.mkdir(exist_ok=True)
    prompt = Text("$ certus fit", style="bold")
    with tempfile.TemporaryDirectory() as folder:
        shown = run_command(folder, "fit")
        draw(Group(prompt, shown), "certus fit", "fit")
        photograph(Path(folder) / "diabetes.html", "report")
    code = "".join(f">>> {line}\n" for line in SESSION.splitlines())
    listing = Syntax(code.rstrip(), "pycon", theme="nord", background_color="default")
    session = Group(listing, Text(run_session(SESSION).rstrip()))
    draw(session, "certus.certify on a model of scikit-learn", "certify")


if __name__ == "__main__":
    main()
