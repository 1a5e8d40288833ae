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
#: number is what it had. It is made smaller, or raised by the lines of a new model.
KERNEL_LINES = 1_500
VERIFY_LINES = 8_745
#: The rooms for language, a transformer of their own among them, have these together.
ROOMS = "attention chains copies drift language mixing ngrams sampling scoring tokens"
#: Tuned models and rewards.
ROOMS += " rewards tuning"
#: Encoders of text.
ROOMS += " encoders"
LANGUAGE = tuple(ROOMS.split())
#: 1,200 for transformers, samplers, tokens and copies, 330 for n-grams and mixtures,
#: 220 for a bound of a transformer's rounding, layer by layer, instead of an estimate.
LANGUAGE_LINES = 1_750 + 440 + 170
#: The rooms for tuned policies: exact sums, draws of its own, and bounds from them.
POLICIES = ("policies", "policy_draws", "tuned_policies")
POLICY_LINES = 620
#: The rooms for rows that a generator made, its best tree, and its privacy.
SYNTHETIC = ("samples", "sample_laws", "tree", "privacy")
SYNTHETIC_LINES = 900
#: The rooms for flows: numbers with a radius, layers of their own, and draws.
FLOWS = ("balls", "drawn_density", "flow_maps", "flows")
FLOW_LINES = 700

#: The rooms for diffusion: a network of their own, its flow, and two denoisers beside it.
DIFFUSION = ("denoisers", "denoising")
DIFFUSION_LINES = 400

#: The rooms for memories and Boltzmann machines: radii, replays, separations, the sum
#: over all states and annealed importance sampling.
MEMORIES = ("binary_memory", "boltzmann", "cancelling", "memory", "modern_memory")
MEMORY_LINES = 680

#: The rooms for graphs: linear systems, cuts, networks of their own, and readers.
GRAPHS = ("cuts", "graph_networks", "graph_reading", "graphs")
GRAPH_LINES = 1_000

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


def lines_of(names: tuple[str, ...]) -> int:
    rooms = (VERIFY / f"{name}.py" for name in names)
    return sum(lines_of_code(room) for room in rooms if room.exists())


def test_the_verifier_does_not_grow() -> None:
    rooms = LANGUAGE + POLICIES + SYNTHETIC + FLOWS + MEMORIES + GRAPHS + DIFFUSION
    assert lines_under(VERIFY) - lines_of(rooms) <= VERIFY_LINES


def test_the_rooms_for_language_stay_small() -> None:
    assert lines_of(LANGUAGE) <= LANGUAGE_LINES
    assert lines_of(POLICIES) <= POLICY_LINES
    assert lines_of(SYNTHETIC) <= SYNTHETIC_LINES
    assert lines_of(FLOWS) <= FLOW_LINES
    assert lines_of(DIFFUSION) <= DIFFUSION_LINES
    assert lines_of(MEMORIES) <= MEMORY_LINES
    assert lines_of(GRAPHS) <= GRAPH_LINES


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
