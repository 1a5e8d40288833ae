"""The verifier stays small enough to read, and its kernel rests on almost nothing.

Lines of code are counted without docstrings, comments and blank lines; ruff holds the
width of 88.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

import certus

VERIFY = Path(certus.__file__).parent / "verify"
KERNEL = VERIFY / "kernel"

#: The kernel may have 1,500. The verifier is to have 7,500 in all; until then its
#: number is what it had. It is made smaller, or raised by the lines of a new model; 48
#: for k-means and mixtures over blocks.
KERNEL_LINES = 1_500
VERIFY_LINES = 8_960
#: Rooms with a mathematics of their own, and their limits together.
ROOMS: dict[str, tuple[str, int]] = {
    # 1,200 for transformers, samplers, tokens and copies, 330 for n-grams and mixtures,
    # 220 for a bound of a transformer's rounding, 440 for tuned models and rewards, 180
    # for encoders of text, 620 for policies: exact sums, draws of its own, bounds, 60
    # for documents that are drawn.
    "language": ("language", 3_144),
    # Rows that a generator made, its best tree, and its privacy: each noisy count paid
    # for once, and all numbers of a model computed again from them.
    "synthetic rows": ("samples sample_laws tree privacy", 930),
    # Numbers with a radius, layers of their own, and draws, of other models as well.
    "flows": ("balls drawn_density flow_maps flows", 732),
    # Cells and networks of their own, and draws.
    "laws of cells": ("cell_laws", 400),
    # Two networks of their own, a flow, two denoisers beside them, and bits.
    "diffusion": ("denoisers denoising noise_bits unet", 680),
    # Two networks each; log p between bounds, modes, and a critic of their own.
    "autoencoders and critics": (
        "adversarial autoencoders elbo made_rows perceptrons quadrature variational",
        1_160,
    ),
    # Cells of their own, and penalties of differences: squares, variation, cones.
    "additive models": ("additive ranges shapes", 480),
    # Readers of four libraries, walks, boxes of leaves, leaves computed again, rows
    # that no change moves to another class, ranges of scores over boxes, categories
    # by the lists of their fit, differences with what rounding took.
    "tree ensembles": (
        "tree_leaves tree_ranges tree_reading tree_robustness tree_walks trees",
        1_450,
    ),
    # Radii, replays, separations, the sum over all states by subsets of columns,
    # annealed sampling.
    "memories": (
        "binary_memory boltzmann cancelling memory modern_memory stored_weights",
        720,
    ),
    # Linear systems, cuts, networks of their own, readers; rounding of mixing.
    "graphs": ("cuts graph_networks graph_reading graphs links", 1_110),
    # Numbers about rows kept aside: shares, ranks, amounts, thresholds, all together;
    # 100 for intervals of models that each leave out a fold, 90 for what holds
    # together, 20 for deviances with bounds.
    "held-out rows": (
        "amounts cross_conformal decisions panel ranking together",
        940,
    ),
    # Contributions that add up: sums, walks over trees, laws of subsets, changes; 30
    # for pairs of rows that walk down all trees together.
    "explanations": (
        "explained explained_additive explained_flips explained_mixing explained_trees",
        790,
    ),
    # The gap of a linear model from sums over blocks of rows; blocks computed twice;
    # 140 for Huber's loss with its scale, and the best constant from its targets; 50
    # for what tells by which libraries a block was computed; 80 for labels of clusters,
    # 50 for checks that look at rows a few at a time.
    "blocks of rows": (
        "at_scale block_backward block_huber block_kmeans block_moments block_rows "
        "block_sums recomputed",
        1_140,
    ),
    # Losses beside trivial values, information by betting, probes, pretext tasks,
    # networks of their own.
    "vectors without labels": (
        "betting encoder_networks hidden_parts joint_losses pretexts probes "
        "representations right_shares",
        870,
    ),
}

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
#: What the kernel may import beside Python's own modules.
ALLOWED = (
    "numpy",
    "scipy",
    "certus.objectives",
    "certus.typing",
    "certus.verify.kernel",
)
PYTHONS_OWN = ("__future__", "collections.abc", "math", "typing")


def lines_of_code(path: Path) -> int:
    kept: set[int] = set()
    text = io.StringIO(path.read_text(encoding="utf-8"))
    for token in tokenize.generate_tokens(text.readline):
        said = token.type == tokenize.STRING and token.line.strip().startswith(
            ('"""', 'r"""', '"')
        )
        if token.type not in NO_CODE and not said:
            kept.update(range(token.start[0], token.end[0] + 1))
    return len(kept)


def lines_under(folder: Path) -> int:
    return sum(map(lines_of_code, folder.rglob("*.py")))


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, path
            if node.module == "certus":
                found.update(f"certus.{alias.name}" for alias in node.names)
            else:
                found.add(node.module)
    return found


def test_the_kernel_can_be_read_in_an_evening() -> None:
    assert lines_under(KERNEL) <= KERNEL_LINES


def lines_of(names: str) -> int:
    """Lines of modules and folders of the verifier."""
    total = 0
    for place in (VERIFY / name for name in names.split()):
        folder = place.is_dir()
        total += (
            lines_under(place) if folder else lines_of_code(place.with_suffix(".py"))
        )
    return total


def test_the_verifier_does_not_grow() -> None:
    apart = sum(lines_of(names) for names, _ in ROOMS.values())
    assert lines_under(VERIFY) - apart <= VERIFY_LINES


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_stays_small(room: str) -> None:
    names, limit = ROOMS[room]
    assert lines_of(names) <= limit


@pytest.mark.parametrize("path", sorted(KERNEL.glob("*.py")), ids=lambda p: p.name)
def test_the_kernel_rests_on_numpy_scipy_and_the_terms(path: Path) -> None:
    for name in imports(path):
        inside = any(name == x or name.startswith(f"{x}.") for x in ALLOWED)
        assert inside or name in PYTHONS_OWN, f"{path.name} imports {name}"


def test_lines_are_counted_without_words(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text('"""Words."""\n\n# more\nx = 1\ny = [\n    2,\n]\n', "utf-8")
    assert lines_of_code(path) == 4


def test_every_import_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text("from certus import objectives as t\nimport numba\n", "utf-8")
    assert imports(path) == {"certus.objectives", "numba"}
