"""How the documentation is built.

Pages are MyST Markdown, the reference is made from the docstrings, the gallery runs
``examples/``. Nothing is fetched while building, and the pages load nothing from
elsewhere: formulas become MathML (see ``_ext/mathml.py``).
"""

from __future__ import annotations

import re
import sys
import warnings
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "certus"
author = "The certus developers"
copyright = "The certus developers, BSD-3-Clause"
release = version = installed("certus")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "live",
    "reference",
]
exclude_patterns = ["_build", "_ext", "_templates", "auto_examples/**.ipynb"]
templates_path = ["_templates"]
language = "en_GB"
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

# The docstrings are numpydoc's, with two sections of ours.
napoleon_google_docstring = False
napoleon_custom_sections = [
    "Objective",
    "Certificate",
    ("Attributes", "params_style"),  # several names may share one line
]
napoleon_use_param = False
napoleon_use_rtype = False
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
add_module_names = False
toc_object_entries_show_parents = "hide"
default_role = "code"

#: The examples that come first, in this order; the others follow by file name.
FIRST = (
    "plot_certificate.py",
    "plot_certify_sklearn.py",
    "plot_lasso_path.py",
    "plot_support_vectors.py",
    "plot_clusters.py",
    "plot_components.py",
    "plot_kernels.py",
    "plot_robust_accuracy.py",
    "plot_fairness.py",
)


class ExampleOrder:
    """Sorts the gallery: the main job first."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> tuple[int, str]:
        """The place of an example, given the name of its file."""
        return FIRST.index(name) if name in FIRST else len(FIRST), name

    def __repr__(self) -> str:
        """Always the same, so that the build does not take it for a change."""
        return "<ExampleOrder>"


def draw_calmly(gallery: dict[str, Any], name: str) -> None:
    """Set matplotlib's style before each example, after its reset."""
    import matplotlib

    matplotlib.rcParams.update(
        {
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": "#8a9096",
            "axes.labelcolor": "#3b4249",
            "axes.titlelocation": "left",
            "axes.titlesize": 11,
            "axes.grid": False,
            "xtick.color": "#5b636b",
            "ytick.color": "#5b636b",
            "font.size": 10,
            "legend.frameon": False,
            "figure.dpi": 100,
        }
    )


sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "backreferences_dir": "api/generated/backreferences",
    "doc_module": ("certus",),
    "filename_pattern": r"/plot_",
    "within_subsection_order": ExampleOrder,
    "reset_modules": ("matplotlib", draw_calmly),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 60,
    "write_computation_times": False,
    "remove_config_comments": True,
    "copyfile_regex": "",
    "image_srcset": ["2x"],
}
suppress_warnings = ["config.cache"]

html_theme = "pydata_sphinx_theme"
html_title = "certus"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"changelog": [], "index": []}
html_theme_options: dict[str, Any] = {
    "logo": {"text": "certus"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 7,
    "show_prev_next": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

_REQUEST = re.compile(r"set_\w+_request$")


def _skip(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> Any:
    """Leave out what scikit-learn and torch document, and fields of NamedTuples."""
    inner = getattr(obj, "fget", obj)
    module = str(getattr(inner, "__module__", "") or "")
    field = type(obj).__name__ == "_tuplegetter"
    theirs = module.startswith(("sklearn.", "torch."))
    if theirs or _REQUEST.match(name) or field:
        return True
    return None


def _sentence(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Keep napoleon from reading "word: text" in a property as a type."""
    if what in ("property", "attribute"):
        lines[:0] = ["..", ""]  # an empty comment


def setup(app: Any) -> None:
    """Register what needs a function."""
    app.connect("autodoc-process-docstring", _sentence, priority=400)
    app.connect("autodoc-skip-member", _skip)
