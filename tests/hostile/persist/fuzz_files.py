"""Thousands of broken model files: each is refused or loads what was saved.

Half of the files are damaged bytes. The checksum must catch every one of them. The
other half are forged: the manifest, the tensor table or the data is changed and the
file sealed again, so that only the checks behind the checksum stand. A forged file may
load, if what it says is a possible model; then the model is used and saved again.
Any other exception, any code run, any runaway time or memory fails the run.

    python tests/hostile/persist/fuzz_files.py --count 10000
"""

import argparse
import copy
import hashlib
import json
import random
import re
import resource
import sys
import tempfile
import time
import types
from collections import Counter
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from certus import persist
from certus.certificate import Certificate, Claim, Evidence, Status, Strength
from certus.evidence import LinearWitness
from certus.objectives.terms import L1

ZEROS = "0" * 64
CANARY = "antigravity"
FORBIDDEN = {"os.system", "subprocess.Popen", "pickle.find_class", "os.exec"}


class Everything(BaseEstimator):
    """Holds one value of every kind a model file knows."""

    def __init__(self, alpha=1.0, alphas=None, random_state=None, inner=None):
        self.alpha = alpha
        self.alphas = alphas
        self.random_state = random_state
        self.inner = inner

    def predict(self, X):
        return X @ self.coef_

    @property
    def twice(self):
        return 2 * self.alpha


def register_models() -> None:
    """Make ``Everything`` a class a model file may name."""
    module = types.ModuleType("certus_file_models")
    module.Everything = Everything
    sys.modules[module.__name__] = module
    persist.REGISTRY["Everything"] = (module.__name__, "Everything")


def example_certificate() -> Certificate:
    claim = Claim("duality_gap", Strength.PROVED, 1e-9, 1e-6, True, fix="none")
    return Certificate(
        "Everything",
        {"alpha": 1.0},
        (claim,),
        "duality_gap",
        Status.SOLVED,
        n_samples=5,
        n_features=3,
        fingerprint={"sum": float("inf")},
        evidence=Evidence("linear", LinearWitness(np.ones(5))),
    )


def example_model() -> Everything:
    rng = np.random.default_rng(0)
    model = Everything(
        alphas=(0.1, float("inf"), float("nan")),
        random_state=np.random.RandomState(3),
        inner=Everything(alpha=np.float32(2.5), random_state=7),
    )
    model.inner.coef_ = np.ones(2)
    model.coef_ = rng.normal(size=(3, 2))
    model.classes_ = np.array(["ja", "nein", None, 3.5], dtype=object)
    model.feature_names_in_ = np.array(["a", "b", "ç"], dtype=object)
    model.mask_ = np.array([True, False, True])
    model.names_ = np.array(["x", "yy"])
    model.days_ = np.array(["2024-02-29", "NaT"], dtype="M8[D]")
    model.waves_ = rng.normal(size=2) + 1j
    model.table_ = {1: "one", (2, "b"): [None, b"\x00"], date(2024, 1, 2): {3, 4}}
    model.when_ = [datetime(2024, 1, 2, 3, 4), timedelta(days=1, seconds=2)]
    model.sparse_ = sp.random_array((4, 5), density=0.4, format="csr", rng=rng)
    model.triplets_ = sp.coo_matrix(np.eye(3))
    model.rng_ = np.random.default_rng(5)
    model.counter_ = np.random.Generator(np.random.Philox(4))
    model.term_ = L1(0.25)
    model.dtype_ = np.dtype("<f4")
    model.certificate_ = example_certificate()
    return model


def take_apart(blob: bytes) -> tuple[dict, dict, bytes]:
    """Manifest, tensor table and data of a model file, read independently."""
    end = 8 + int.from_bytes(blob[:8], "little")
    table = json.loads(blob[8:end])
    manifest = json.loads(table.pop("__metadata__")["certus"])
    return manifest, table, blob[end:]


def put_together(manifest, table: dict, data: bytes, **other) -> bytes:
    """A model file with a checksum that fits, whatever it says."""
    if isinstance(manifest, dict):
        body = {k: v for k, v in manifest.items() if k != "sha256"}
        manifest = json.dumps({"sha256": ZEROS, **body})
        manifest = manifest.replace('{"sha256": "', '{"sha256":"', 1)
    header = json.dumps({"__metadata__": {"certus": manifest, **other}, **table})
    blob = len(header).to_bytes(8, "little") + header.encode() + data
    return blob.replace(ZEROS.encode(), hashlib.sha256(blob).hexdigest().encode(), 1)


# ----------------------------------------------------------------- damage: raw bytes


def damage(blob: bytes, draw: random.Random) -> bytes:
    raw, n = bytearray(blob), len(blob)
    header = 8 + int.from_bytes(blob[:8], "little")
    at = draw.randrange(draw.choice((8, header, n)))
    length = draw.choice((1, 2, 8, 64, 1000))
    kind = draw.randrange(9)
    if kind == 0:
        raw[at] ^= 1 << draw.randrange(8)
    elif kind == 1:
        raw[at : at + length] = draw.randbytes(length)
    elif kind == 2:
        del raw[at:]
    elif kind == 3:
        del raw[at : at + length]
    elif kind == 4:
        raw[at:at] = draw.randbytes(length)
    elif kind == 5:
        raw += draw.randbytes(length)
    elif kind == 6:
        raw[at : at + length] = bytes(length)
    elif kind == 7:
        raw[:8] = draw.choice((0, 1, n, n - 9, 2**31, 2**63, 2**64 - 1)).to_bytes(
            8, "little"
        )
    else:
        other = draw.randrange(n)
        raw[at : at + length] = blob[other : other + length]
    return bytes(raw)


# ------------------------------------------------------ forgery: content, then sealed


def hostile_values(draw: random.Random) -> object:
    deep: object = 1
    for _ in range(draw.choice((3, 60, 300))):
        deep = [deep]
    return draw.choice(
        (
            None, True, 0, -1, 2**31, 2**63, 2**64, 10**400, -0.5, 1e308, "", "nan",
            "C", "|O", "<U999999999", "f8,f8", CANARY, f"{CANARY}.fly", "os.system",
            "__class__", "__reduce__", "predict", "Everything", "\ud800", "\0",
            [], {}, [[]], [0, 2**62], deep, {"~": None}, {"~": "estimator"},
            {"~": "objects", "shape": [2**40], "items": []},
            {"~": "objects", "shape": [0, 2**62, 9], "items": []},
            {"~": "array", "dtype": "<f8", "order": "C", "tensor": "coef_"},
            {"~": "type", "name": f"{CANARY}.fly"},
            {"~": "estimator", "class": CANARY, "params": {}, "attributes": {}},
            {"~": "estimator", "class": "Everything", "params": {},
             "attributes": {"predict": 1}},
            {"~": "range", "start": 0, "stop": 10**18, "step": 1},
            {"~": "scalar", "dtype": "<f4", "value": 1e300},
            {"~": "scalar", "dtype": "|b1", "value": "x"},
            {"~": "dict", "items": [[[], 1]]},
            {"~": "set", "items": [[1]]},
        )
    )  # fmt: skip


def nodes(tree: object) -> list[tuple]:
    """Every (container, key) in a JSON tree, with container[key] the value."""
    found, todo = [], [tree]
    while todo:
        node = todo.pop()
        pairs = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in pairs:
            found.append((node, key))
            if isinstance(value, dict | list):
                todo.append(value)
    return found


def forge(blob: bytes, draw: random.Random) -> bytes:
    manifest, table, data = take_apart(blob)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        tree = draw.choice((manifest, manifest, manifest, table))
        places = nodes(tree)
        if not places:
            continue
        node, key = draw.choice(places)
        kind = draw.randrange(7)
        if kind <= 2:
            node[key] = hostile_values(draw)
        elif kind == 3:
            other, name = draw.choice(places)
            node[key] = copy.deepcopy(other[name])
        elif kind == 4:
            del node[key]
        elif kind == 5 and isinstance(node, dict):
            node[draw.choice((CANARY, "__init__", "~", "x", ""))] = node.pop(key)
        elif type(node[key]) is int:
            node[key] += draw.choice((-1, 1, 8, 2**20, 2**62))
        elif data:
            raw = bytearray(data)
            raw[draw.randrange(len(raw))] = draw.randrange(256)
            data = bytes(raw)
    return put_together(manifest, table, data)


# --------------------------------------------------------------------------- the run


def same(a: object, b: object) -> bool:
    """Whether two models hold the same state, by encoding both."""
    tensors: list[dict] = [{}, {}]
    first, second = (persist.encode(m, t) for m, t in zip((a, b), tensors))
    return first == second and all(
        x.dtype == y.dtype and x.tobytes() == y.tobytes()
        for x, y in zip(tensors[0].values(), tensors[1].values(), strict=True)
    )


def use(value: object) -> None:
    """Let compiled code touch what was loaded: a bad index would crash here."""
    if isinstance(value, np.random.RandomState):
        value.randint(10, size=700)
    elif isinstance(value, np.random.Generator):
        value.integers(10, size=700)
    elif sp.issparse(value) and value.ndim == 2 and max(value.shape) < 10**6:
        value @ np.ones(value.shape[1])
    elif isinstance(value, np.ndarray):
        repr(value)
    elif isinstance(value, Certificate):
        str(value)
    elif isinstance(value, list | tuple | set):
        for item in value:
            use(item)
    elif isinstance(value, BaseEstimator):
        for item in vars(value).values():
            use(item)


class Watch:
    """Sees code being run, from Python's own audit events."""

    def __init__(self) -> None:
        self.on, self.seen = False, []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple) -> None:
        if self.on and event in FORBIDDEN:
            self.seen.append((event, args))


def run(count: int, seed: int, folder: Path, models: list | None = None) -> Counter:
    """Try ``count`` files; raise on the first that breaks the rules."""
    register_models()
    path, again = folder / "fuzzed.certus", folder / "again.certus"
    samples = []
    for model in [example_model(), *(models or [])]:
        blob = persist.save(model, path, split={"rows": [1, 2]}).read_bytes()
        samples.append((blob, persist.load(path)))
    draw, outcomes, watch = random.Random(seed), Counter(), Watch()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(count):
        blob, original = draw.choice(samples)
        forged = bool(draw.randrange(2))
        mutated = (forge if forged else damage)(blob, draw)
        path.write_bytes(mutated)
        started, watch.on = time.perf_counter(), True
        try:
            model = persist.load(path)
            outcome = "loaded"
            if not forged and not same(model, original):
                raise AssertionError("damaged bytes were loaded as another model")
            use(model)
            if forged:
                persist.save(model, again)
        except persist.ModelFileError as error:
            outcome = re.sub(r"\d+", "N", " ".join(str(error).split()[1:4]))
            outcome = "loaded, not saved" if "cannot save" in str(error) else outcome
        except BaseException:
            print(f"file {i} of seed {seed} broke the rules", file=sys.stderr)
            raise
        watch.on = False
        if time.perf_counter() - started > 5:
            raise AssertionError(f"file {i} of seed {seed} took more than 5 s")
        outcomes["forged" if forged else "damaged", outcome] += 1
    if watch.seen or CANARY in sys.modules:
        raise AssertionError(f"a file ran code: {watch.seen or CANARY}")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    if grown > 500_000:
        raise AssertionError(f"memory grew by {grown:,} kB")
    return outcomes


def real_models() -> list:
    """Two fitted models as users save them."""
    from certus.linear_model import Ridge, RidgeClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = X @ [1.0, -2.0, 0.0, 0.5] + rng.normal(size=60)
    labels = np.where(y > 0, "up", "down")
    return [Ridge().fit(X, y), RidgeClassifier().fit(X, labels)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run(options.count, options.seed, Path(folder), real_models())
    for (kind, outcome), n in sorted(outcomes.items()):
        print(f"{n:7,}  {kind:8} {outcome}")
    print(f"{sum(outcomes.values()):7,}  files, none of which broke the rules")


if __name__ == "__main__":
    main()
