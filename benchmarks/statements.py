"""How often the statements of ``certus fit`` miss, beside how often they may.

Each row of a table repeats one statement on data whose truth is known: tiny samples,
ties, probabilities near 0 and 1, rare labels, heavy tails. The laws are those of
``tests/statistical``, which fail if a statement misses more often than it says.

    python -m benchmarks.statements            # all parts
    python -m benchmarks.statements bootstrap  # one part

Each part that ran replaces its own section of results/statements.md; the others stay.
"""

from __future__ import annotations

import importlib.util
import math
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.report import describe_machine
from benchmarks.run import machine

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "statements.md"
LEVEL = 0.1


def laws(name: str) -> ModuleType:
    """A file of the statistical tests: its laws, and what misses them."""
    path = ROOT / "tests" / "statistical" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(head: str, rows: list[list[Any]]) -> str:
    """Markdown."""
    text = f"| {head} |\n|{'---|' * len(head.split(' | '))}\n"
    return text + "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


def outside(ends: Any, truth: float) -> bool:
    return not ends.low - 1e-12 <= truth <= ends.high + 1e-12


# ---- labels --------------------------------------------------------------------------


def panel() -> str:
    """Two labels: the whole panel, F-beta included; then its metrics one by one."""
    test = laws("selection/test_panel")
    rows = []
    for law in test.LAWS:
        for n in (3, 40, 400):
            repeats = 300
            count = test.misses(test.LAWS[law], n, repeats, seed=n)
            worst = max((k for k in count if k != "any"), key=lambda k: count[k])
            rows.append([law, n, f"{count['any']} of {repeats}", worst, count[worst]])
    return "Any interval of the panel, two labels, at 10 %:\n\n" + table(
        "law | rows | missed | most often | by it alone", rows
    )


def several() -> str:
    """Three labels; and groups of rows that are copies of one another."""
    from certus.verify.panel import CLIP, Said, panel_intervals, panel_shares

    kinds = np.array([[0.8, 0.15, 0.05], [0.3, 0.4, 0.3], [0.0, 0.0, 1.0]])
    weight, labels = np.array([0.6, 0.3, 0.1]), np.array(["a", "b", "c"])
    top = kinds.argmax(axis=1)
    right = kinds[np.arange(3), top]
    share = weight @ kinds
    true = {
        "log_loss": weight @ -(kinds * np.log(np.maximum(kinds, CLIP))).sum(axis=1),
        "brier": weight @ (0.5 * (1 - np.square(kinds).sum(axis=1))),
        "error": weight @ (1 - right),
        "calibration": 0.0,
        "balanced_error": 1
        - np.mean([weight @ (kinds[:, k] * (top == k)) / share[k] for k in range(3)]),
    }
    rows, repeats = [], 300
    for n in (5, 60, 600):
        rng, missed = np.random.default_rng(n), 0
        for _ in range(repeats):
            kind = rng.choice(3, n, p=weight)
            y = labels[(rng.random(n)[:, None] > kinds[kind].cumsum(axis=1)).sum(1)]
            said = Said(y, labels[top[kind]], kinds[kind], labels)
            ends = panel_intervals(said, "log_loss", delta=LEVEL)
            missed += any(outside(ends[name], t) for name, t in true.items())
        rows.append(["three labels, one certain", n, f"{missed} of {repeats}", ""])
    test = laws("selection/test_panel")
    law = test.LAWS["ties"]
    true = {k: v for k, v in test.truths(law).items() if k in _GROUPED}
    for groups in (8, 60):
        rng, missed, naive = np.random.default_rng(groups), 0, 0
        for _ in range(repeats):
            p, y = test.draw(law, groups, rng)
            size = rng.integers(1, 30, groups)
            unit = np.repeat(np.arange(groups), size)
            given = test.said(p[unit], y[unit])._replace(groups=unit)
            part = panel_shares(given, "error", delta=LEVEL)
            ends = panel_intervals(given, "error", shares=part)
            missed += any(outside(ends[name], t) for name, t in true.items())
            ends = panel_intervals(given._replace(groups=None), "error", shares=part)
            naive += any(outside(ends[name], t) for name, t in true.items())
        told = f"{naive} of {repeats}"
        what = f"{groups} groups of 1 to 29 copies of a row"
        rows.append([what, int(size.sum()), f"{missed} of {repeats}", told])
    return "Three labels, and groups (means over groups), at 10 %:\n\n" + table(
        "law | rows | any missed | if groups were ignored", rows
    )


_GROUPED = ("log_loss", "brier", "error")


def decisions() -> str:
    """Costs, recall, false alarms and the precision of a threshold."""
    from certus.verify.decisions import Costs, cost_intervals, recall_threshold

    test, rows, repeats = laws("selection/test_panel"), [], 400
    costs, cut = Costs(1.0, 20.0), 0.01
    for law in ("ties", "rare", "sure"):
        p, w = (np.array(part) for part in test.LAWS[law])

        def cost(at: float, p: Any = p, w: Any = w) -> float:
            return float(w @ np.where(p >= at, costs.fp * (1 - p), costs.fn * p))

        true = cost(cut), cost(0.5), cost(0.5) - cost(cut)
        for n in (5, 150):
            rng, missed = np.random.default_rng(n), 0
            for _ in range(repeats):
                chance, y = test.draw(test.LAWS[law], n, rng)
                found = cost_intervals(y == 1, chance, cut, costs, LEVEL)
                missed += any(outside(e, t) for e, t in zip(found, true, strict=True))
            rows.append(
                [
                    "cost, cost at 0.5 and what is saved",
                    law,
                    n,
                    f"{missed} of {repeats}",
                ]
            )
        if law == "sure":
            continue
        for n in (60, 1000):
            rng, lost, promised = np.random.default_rng(n), 0, 0
            for _ in range(repeats):
                chance, y = test.draw(test.LAWS[law], n, rng)
                found = recall_threshold(y == 1, chance, 0.7, LEVEL)
                if found.threshold is None:
                    continue
                promised += 1
                told = p >= found.threshold
                kept = w @ (p * told) / (w @ p)
                alarms = w @ ((1 - p) * told) / (w @ (1 - p))
                precise = w @ (p * told) / (w @ told)
                lost += (
                    kept < 0.7
                    or outside(found.alarms, alarms)
                    or outside(found.precision, precise)
                )
            what = "recall 0.7, its false alarms and precision"
            rows.append([what, law, n, f"{lost} of {promised} promises"])
    return "Thresholds, at 10 %:\n\n" + table(
        "statement | law | rows | any missed", rows
    )


def calibration() -> str:
    """The distance of probabilities and frequencies over bins fixed before."""
    from certus.verify.panel import calibration_interval

    test, rows, repeats = laws("selection/test_panel"), [], 400
    cases = {
        "true, near 0 and 1": ([0.0, 0.001, 0.999, 1.0], 0.0),
        "true, rare": ([0.001, 0.02, 0.5], 0.0),
        "true, in the middle": ([0.1, 0.3, 0.5, 0.7], 0.0),
        "too high by 0.15": ([0.1, 0.3, 0.5, 0.7], 0.15),
        "too high by 0.01, near 0": ([0.001, 0.002], 0.01),
    }
    for name, (levels, off) in cases.items():
        for n in (2, 40, 2000):
            rng, missed, width = np.random.default_rng(n), 0, 0.0
            for _ in range(repeats):
                p = rng.choice(levels, n)
                y = (rng.random(n) < p).astype(int)
                ends = calibration_interval(test.said(p + off, y), LEVEL)
                missed += outside(ends, off)
                width += (ends.high - ends.low) / repeats
            rows.append([name, n, f"{missed} of {repeats}", f"{width:.2f}"])
    return "The calibration claim, at 10 %:\n\n" + table(
        "probabilities | rows | missed | mean width", rows
    )


def together() -> str:
    """Everything said of one set of rows, decisions and the floor included."""
    test, rows, repeats = laws("selection/test_together"), [], 400
    whole = test.DeltaShares(LEVEL, LEVEL, LEVEL, 1)
    for n in (30, 250, 1000):
        rng = np.random.default_rng(n)
        shares = test.shares_of(n, rng, LEVEL)
        drawn = [test.draw(n, rng) for _ in range(repeats)]
        missed = sum(bool(test.misses(shares, *rows_)) for rows_ in drawn)
        alone = sum(bool(test.misses(whole, *rows_)) for rows_ in drawn)
        rows.append([n, f"{missed} of {repeats}", f"{alone} of {repeats}"])
    return (
        "Metrics, costs and the coverage given the rows, all together, at 10 %:\n\n"
        + table("rows | any missed | if each had 10 % of its own", rows)
    )


# ---- amounts -------------------------------------------------------------------------


def bounded() -> str:
    """With bounds of the target: a rare value at the end governs the mean."""
    from certus.verify.amounts import amount_interval

    values, w = np.array([0.01, 0.1, 1.0]), np.array([0.6, 0.37, 0.03])
    guess, q, repeats = 0.05, 0.9, 400
    square, short = w @ (values - guess) ** 2, values - guess
    true = {
        "rmse": math.sqrt(square),
        "mae": w @ np.abs(short),
        "r2": 1 - square / (w @ (values - w @ values) ** 2),
        "pinball": w @ np.maximum(q * short, (q - 1) * short),
        "poisson": w @ (2 * (values * np.log(values / guess) - short)),
        "gamma": w @ (2 * (values / guess - 1 - np.log(values / guess))),
    }
    rows = []
    for metric, truth in true.items():
        counts = []
        for n in (5, 60, 1000):
            rng, missed = np.random.default_rng(n), 0
            for _ in range(repeats):
                y = rng.choice(values, n, p=w)
                ends = amount_interval(
                    y, np.full(n, guess), metric, (0.01, 1.0), LEVEL, q
                )
                missed += ends is not None and outside(ends, float(truth))
            counts.append(f"{missed} of {repeats}")
        rows.append([metric, *counts])
    return "Amounts with bounds, 3 % of the rows at the end, at 10 %:\n\n" + table(
        "metric | 5 rows | 60 rows | 1,000 rows", rows
    )


#: Noise that is added to (or, for deviances, multiplied with) a prediction.
NOISE: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "t, 3 degrees": lambda rng, n: rng.standard_t(3, n),
    "lognormal": lambda rng, n: rng.lognormal(0, 1, n) - math.exp(0.5),
    "one in 100 is 10": lambda rng, n: 10.0 * (rng.random(n) < 0.01),
}
FACTORS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "gamma, shape 2": lambda rng, n: rng.gamma(2, 0.5, n),
    "lognormal": lambda rng, n: rng.lognormal(-0.5, 1, n),
}


def bootstrap() -> str:
    """Without bounds: how often the 95 % intervals of the bootstrap miss."""
    rows, repeats = [], 250
    cases = [(m, law, NOISE[law]) for m in ("rmse", "mae", "r2") for law in NOISE]
    cases += [(m, law, FACTORS[law]) for m in ("poisson", "gamma") for law in FACTORS]
    for metric, law, draw in cases:
        counts = [_short(metric, draw, n, repeats) for n in (20, 60, 300)]
        rows.append([metric, law, *(f"{k} of {repeats}" for k in counts)])
    head = "metric | errors | 20 rows | 60 rows | 300 rows"
    return "Amounts without bounds: the bootstrap, MEASURED, at 5 %:\n\n" + table(
        head, rows
    )


def _short(metric: str, draw: Any, n: int, repeats: int) -> int:
    """Misses of the bootstrap interval; the truth is from four million rows."""
    from certus.verify.amounts import _joined, _parts
    from certus.verify.amounts import bootstrap as ends

    def rows(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        z = rng.normal(size=n)
        if metric in ("poisson", "gamma"):
            z = np.exp(z)
            return z * draw(rng, n), z
        return z + draw(rng, n), z

    joined = partial(_joined, metric=metric)
    rng = np.random.default_rng(1)
    truth = float(joined(_parts(*rows(rng, 4_000_000), metric, 0.5).mean(axis=1)))
    missed, rng = 0, np.random.default_rng(n)
    for _ in range(repeats):
        low, high = ends(_parts(*rows(rng, n), metric, 0.5), joined, 0.05)
        missed += not low <= truth <= high
    return missed


# ---- intervals of predictions, and the watch -----------------------------------------


def crossed() -> str:
    """CV+ after a refit, the choice of the model included."""
    from certus.bounds import cv_plus_coverage

    test, rows = laws("selection/test_refit"), []
    test.REPEATS = 30
    for name, n, models in (
        ("heavy", 40, "AMOUNTS"),
        ("tied", 45, "AMOUNTS"),
        ("spread", 60, "AMOUNTS"),
        ("spread", 22, "AMOUNTS"),
        ("rare", 40, "LABELS"),
        ("many", 60, "LABELS"),
    ):
        held, naive = test.repeated(
            getattr(test, name), n, getattr(test, models), seed=n
        )
        least = cv_plus_coverage(n - n % 5, 5, 0.8)
        error = held.std(ddof=1) / math.sqrt(len(held))
        said = f"{held.mean():.3f} ± {error:.3f}"
        rows.append([name, n, f"{least:.3f}", said, f"{naive.mean():.3f}"])
    return (
        "CV+ asked for at 80 %, 30 tables each, share of 1,000 new rows that was held "
        "(± its standard error); *naive*: residuals of the fit, or the predicted "
        "label alone:\n\n" + table("law | rows | guaranteed | held | naive", rows)
    )


def watched() -> str:
    """The any-time test, its band, and the columns."""
    test, rows, repeats = laws("monitoring/test_watch"), [], 300
    for law in test.SCORES:
        for n, alpha in ((5, 0.1), (50, 0.5), (200, 0.01)):
            missed = sum(
                test.false_alarm(test.SCORES[law], n, 600, alpha, seed)
                for seed in range(repeats)
            )
            what = f"alarm in 600 rows, scores {law}, {n} calibration rows, α = {alpha}"
            rows.append([what, f"{missed} of {repeats}"])
    missed = sum(test.leaves_band(600, seed) for seed in range(repeats))
    rows.append(["band around the running coverage", f"{missed} of {repeats}"])
    missed = sum(test.misses(120, 90, seed) for seed in range(150))
    rows.append(["any of six columns said to have moved", f"{missed} of 150"])
    return "`certus watch`, nothing having changed, at 5 %:\n\n" + table(
        "statement | wrong", rows
    )


# ---- probabilities -------------------------------------------------------------------


def probabilities() -> str:
    """Are probabilities true, as candidates give them and after calibration?"""
    import warnings

    from sklearn.datasets import load_breast_cancer, load_digits, make_moons
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    from benchmarks.tables import rare
    from certus.calibration import PlattClassifier

    warnings.simplefilter("ignore")
    moons = make_moons(2000, noise=0.4, random_state=0)
    frame, y, _ = rare(np.random.default_rng(0))
    digits = load_digits()
    sets = {
        "breast cancer": load_breast_cancer(return_X_y=True),
        "moons": moons,
        "2 % positives": (frame.to_numpy(), y),
        "digits, is it 8?": (digits.data, (digits.target == 8).astype(int)),
    }
    rows = []
    for name, (X, y) in sets.items():
        A, B, a, b = train_test_split(
            X, y, train_size=min(1200, len(y) // 2), stratify=y, random_state=0
        )
        scale = StandardScaler().fit(A)
        A, B = scale.transform(A), scale.transform(B)
        folds = _inner(a)
        for kind, model in _tuned(A, a, folds).items():
            one = PlattClassifier(model, cv=folds[:1])
            whole = PlattClassifier(model, cv=folds)
            losses, offs = [], []
            for each in (model, one, whole):
                p = each.fit(A, a).predict_proba(B)[:, 1]
                own = np.clip(np.where(b == 1, p, 1 - p), 1e-3, 1)
                edges = np.quantile(p, [0.2, 0.4, 0.6, 0.8])
                place = np.searchsorted(edges, p, side="right")
                off = np.abs(np.bincount(place, b - p, minlength=5)).sum() / len(b)
                losses.append(f"{-np.log(own).mean():.4f}")
                offs.append(f"{100 * off:.1f} %")
            rows.append([f"{name}, {len(a):,} rows", kind, *losses, *offs])
    return (
        "Probabilities on new rows, of candidates with the settings that `certus fit` "
        "chooses for them: as they are, calibrated on one inner fold, and on three "
        "(`PlattClassifier`); *off* is Σ over five bins |E (y − p)|:\n\n"
        + table(
            "data | model | log loss | one fold | three | off | one fold | three", rows
        )
    )


def _inner(y: np.ndarray) -> list[Any]:
    from certus.selection.splits import make_split

    return list(make_split(y, labels=True, fraction=0.0, folds=3, seed=0).folds)


def _tuned(A: np.ndarray, a: np.ndarray, folds: list[Any]) -> dict[str, Any]:
    """Models that give probabilities of their own, with settings chosen on A."""
    from certus.config import config_context
    from certus.selection.candidates import Tuning, list_candidates
    from certus.selection.metrics import METRICS

    own = ("k nearest neighbours", "neural network", "gradient boosting", "LightGBM")
    metric, found = METRICS["log_loss"], {}
    for candidate in list_candidates("binary", *A.shape, 0, 2, metric=metric):
        if candidate.name not in own:
            continue
        on = Tuning(A, a, folds, True, lambda: False, metric, 1)
        with config_context(certify="never"):
            choose = candidate.choose
            model = choose(candidate.model, on).model if choose else candidate.model
        found[candidate.name] = model
    return found


PARTS: dict[str, Callable[[], str]] = {
    part.__name__: part
    for part in (
        panel,
        several,
        decisions,
        calibration,
        together,
        bounded,
        bootstrap,
        crossed,
        watched,
        probabilities,
    )
}

HEAD = """# How often the statements of `certus fit` miss

`python -m benchmarks.statements`, seeds fixed; each section says when and on what it
was measured. A statement at 10 % may miss in one repetition of ten; most intervals are
wider than they need to be and miss less often. The laws are those of
`tests/statistical`: *ties* has probabilities 0.1, 0.4 and 0.8, *rare* 0.001, 0.02 and
0.5, *sure* 0, 0.999 and 1, *one* only 0.3.

"""


def sections(text: str) -> dict[str, str]:
    """The sections of a file of results, by the names of their parts."""
    pieces = re.split(r"^## (\w+)\n\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def merged(old: str, new: dict[str, str]) -> str:
    """The file with new sections in the place of those of the same names."""
    known = sections(old) | new
    return HEAD + "\n".join(
        f"## {name}\n\n{known[name].strip()}\n" for name in PARTS if name in known
    )


def main() -> None:
    """The parts that were named, or all, into the file and to the screen."""
    where = machine(("certus", "numpy", "scipy", "scikit-learn"))
    for name in sys.argv[1:] or PARTS:
        start = time.process_time()
        found = PARTS[name]()
        seconds = time.process_time() - start
        date = time.strftime("%d %B %Y")
        stamp = f"{date}, {seconds:.0f} s of processor; {describe_machine(where)}"
        print(found, flush=True)
        old = RESULTS.read_text() if RESULTS.exists() else ""
        RESULTS.write_text(merged(old, {name: f"{found}\n{stamp}"}))


if __name__ == "__main__":
    main()
