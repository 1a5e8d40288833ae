"""Saving and loading: what goes in comes out, with its type, and nothing else moves."""

import copy
import datetime as dt
import json
import math
import os
import stat
import subprocess
import sys
import types

import numpy as np
import pytest
import safetensors
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge as TheirRidge

from certus import persist
from certus.certificate import Certificate, Claim, Evidence, Status, Strength
from certus.evidence import LinearWitness, NetworkWitness, RatingsWitness
from certus.objectives.terms import TERMS
from certus.persist import ModelFileError, container, decode, encode, load, save


class Toy(BaseEstimator):
    """An estimator with room for anything."""

    def __init__(self, alpha=1.0, inner=None):
        self.alpha = alpha
        self.inner = inner

    def predict(self, X):
        return X @ self.coef_


@pytest.fixture
def toy(monkeypatch):
    module = types.ModuleType("certus_toy_models")
    module.Toy = Toy
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(persist.REGISTRY, "Toy", (module.__name__, "Toy"))
    return Toy


def through_json(value):
    """Encode, write as strict JSON, parse, decode."""
    tensors = {}
    data = encode(value, tensors)
    for tensor in tensors.values():
        assert tensor.flags.c_contiguous
        assert tensor.dtype.kind in "biuf"
    return decode(json.loads(json.dumps(data, allow_nan=False)), tensors)


def alike(a, b):
    """Equality of values and of their types, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return (
            a.dtype == b.dtype
            and a.shape == b.shape
            and (
                all(map(alike, a.ravel().tolist(), b.ravel().tolist()))
                if a.dtype == object
                else a.tobytes() == b.tobytes()
            )
        )
    if isinstance(a, np.floating) and np.isnan(a):
        return bool(np.isnan(b))  # a scalar NaN has no sign or payload to keep
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        ) or a != a != b != b
    if isinstance(a, complex):
        return alike(a.real, b.real) and alike(a.imag, b.imag)
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=True)
        return len(a) == len(b) and all(
            alike(k, m) and alike(v, w) for (k, v), (m, w) in pairs
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == b


def as_objects(values):
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array


DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(endianness="?", sizes=(64, 128)),
    hnp.datetime64_dtypes(endianness="?"),
    hnp.timedelta64_dtypes(endianness="?"),
    hnp.unicode_string_dtypes(endianness="?", min_len=1),
    hnp.byte_string_dtypes(min_len=1),
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0))
SCALARS = hnp.arrays(DTYPES, ()).map(lambda a: a[()])
OFFSETS = st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23))
ZONES = st.none() | OFFSETS.map(dt.timezone)
TEXT = st.text(st.characters(codec=None))
HASHABLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    TEXT,
    st.binary(),
    st.dates(),
    st.tuples(st.integers(), TEXT),
    SCALARS.filter(lambda s: s == s),
)
LEAVES = st.one_of(
    HASHABLE,
    st.floats(),
    st.complex_numbers(),
    st.datetimes(timezones=ZONES),
    st.times(timezones=ZONES),
    st.timedeltas(),
    st.frozensets(st.integers()),
    st.sets(st.integers()),
    SCALARS,
    ARRAYS,
    DTYPES,
    st.sampled_from([float, str, object, np.float32, np.int64, np.bool_]),
    st.sampled_from([*Status, *Strength]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(TEXT | st.just("~"), inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.lists(inner, max_size=4).map(as_objects),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_any_value_comes_back_with_its_type(value):
    assert alike(through_json(value), value)


@given(hnp.arrays(DTYPES, hnp.array_shapes(min_dims=2, max_dims=3)))
def test_arrays_keep_their_memory_order(array):
    ordered = np.asfortranarray(array)
    back = through_json(ordered)
    assert back.flags.f_contiguous == ordered.flags.f_contiguous
    assert back.flags.c_contiguous == ordered.flags.c_contiguous
    assert back.tobytes() == ordered.tobytes()


def test_strided_and_mapped_arrays_are_stored_by_value(tmp_path):
    base = np.arange(24.0).reshape(4, 6)
    np.testing.assert_array_equal(through_json(base[::2, ::-3]), base[::2, ::-3])
    mapped = np.memmap(tmp_path / "m", dtype="f8", mode="w+", shape=(3,))
    assert type(through_json(mapped)) is np.ndarray


def test_arrays_come_back_writable():
    back = through_json(np.zeros(3))
    back[0] = 1.0


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("form", ["array", "matrix"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "?"])
def test_sparse_matrices(kind, form, dtype):
    dense = np.array([[0, 1, 0], [2, 0, 3]]).astype(dtype)
    matrix = getattr(sp, f"{kind}_{form}")(dense)
    back = through_json(matrix)
    assert type(back) is type(matrix)
    assert back.dtype == matrix.dtype
    np.testing.assert_array_equal(back.toarray(), dense)


def test_other_sparse_formats_are_refused():
    with pytest.raises(ModelFileError, match="lil_array"):
        encode(sp.lil_array((2, 2)), {})


@pytest.mark.parametrize("bits", ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"])
def test_generators_continue_where_they_were(bits):
    rng = np.random.Generator(getattr(np.random, bits)(11))
    rng.integers(10, size=3, dtype=np.int32)
    back = through_json(rng)
    assert type(back.bit_generator) is type(rng.bit_generator)
    np.testing.assert_array_equal(back.normal(size=700), rng.normal(size=700))
    child, expected = back.spawn(1)[0], rng.spawn(1)[0]
    assert child.random() == expected.random()


def test_random_states_continue_where_they_were():
    rng = np.random.RandomState(5)
    rng.normal()  # leaves the second of a pair of normal numbers behind
    back = through_json(rng)
    np.testing.assert_array_equal(back.normal(size=1300), rng.normal(size=1300))


@given(st.sampled_from(sorted(TERMS)), st.data())
def test_terms(name, data):
    count = len(TERMS[name]._fields)
    values = data.draw(st.lists(st.floats(), min_size=count, max_size=count))
    for k, field in enumerate(TERMS[name]._fields):
        if field in ("left", "right", "kernel"):  # kernels built of kernels
            values[k] = TERMS["Gaussian"](0.5)
    back = through_json(TERMS[name](*values))
    assert type(back) is TERMS[name]
    assert alike(tuple(back), tuple(values))


def test_what_a_solver_may_leave_in_evidence_is_saved():
    made = Evidence("ratings", RatingsWitness(np.int64(3), 0.5, start=np.arange(2.0)))
    back = through_json(made)
    assert back.witness[:4] == made.witness[:4]
    np.testing.assert_array_equal(back.witness.start, [0.0, 1.0])
    ended = Evidence("network", NetworkWitness(3, 2, diverged=(1, 7, 0.5)))
    assert through_json(ended) == ended
    with pytest.raises(ModelFileError, match="not of the kind 'linear'"):
        through_json(Evidence("linear", made.witness))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("ratings", {"seed": "three"}),
        ("ratings", {"seed": 3.5}),
        ("ratings", {"diverged": 1}),
        ("network", {"diverged": {"a": 1}}),
        ("linear", {"dual": [1.0, 2.0]}),
        ("conformal", {}),
    ],
)
def test_forged_witnesses_are_refused(kind, told):
    tensors = {}
    forged = {"kind": "linear", "terms": [], "params": {}, "arrays": {}}
    data = encode(Evidence("none"), tensors)
    assert set(forged) < set(data)
    data.update(kind=kind, params=encode(told, tensors))
    with pytest.raises(ModelFileError, match=r"is not valid: it holds (a|no) "):
        decode(data, tensors)


def make_certificate():
    claims = (
        Claim("duality_gap", Strength.PROVED, 1e-9, 1e-6, True, "½‖r‖²", "weak"),
        Claim("shape", Strength.MEASURED, float("nan"), assumptions=("rows i.i.d.",)),
    )
    return Certificate(
        "Toy",
        {"alpha": float("inf"), "solver": "auto"},
        claims,
        "duality_gap",
        Status.SOLVED,
        n_samples=4,
        n_features=2,
        evidence=Evidence("linear", LinearWitness(np.ones(4))),
    )


def test_a_certificate_comes_back_as_stated_not_rechecked():
    made = make_certificate()
    back = through_json(made)
    assert back.origin == "file"
    assert "stated, not rechecked" in str(back)
    assert {**back.to_dict(), "origin": "fit"} == made.to_dict()
    np.testing.assert_array_equal(back.evidence.witness.dual, np.ones(4))
    assert through_json(made.evidence).to_dict() == made.evidence.to_dict()
    assert through_json(made.claims[0]) == made.claims[0]


def fitted(cls):
    model = cls(alpha=0.5, inner=cls(alpha=(1, math.inf)))
    model.inner.coef_ = np.ones(2, dtype="f4")
    model.coef_ = np.array([1.0, -2.0])
    model.intercept_ = np.float64(0.25)
    model.classes_ = np.array(["no", "yes"], dtype=object)
    model.feature_names_in_ = np.array(["a", "b"], dtype=object)
    model.n_features_in_ = 2
    model.certificate_ = make_certificate()
    return model


def test_a_model_comes_back_whole(toy, tmp_path):
    model = fitted(toy)
    back = load(save(model, tmp_path / "m.certus"))
    assert type(back) is toy
    assert set(vars(back)) == set(vars(model))
    assert back.alpha == 0.5
    assert back.inner.alpha == (1, math.inf)
    assert back.inner.coef_.dtype == np.float32
    assert type(back.intercept_) is np.float64
    assert alike(back.classes_, model.classes_)
    assert alike(back.feature_names_in_, model.feature_names_in_)
    X = np.array([[3.0, 4.0]])
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def test_an_unfitted_model_comes_back(toy, tmp_path):
    back = load(save(toy(alpha=3), str(tmp_path / "m.certus")))
    assert vars(back) == {"alpha": 3, "inner": None}


def test_callbacks_are_not_copied_with_the_model(toy, tmp_path):
    model = toy()
    model._skl_callbacks = [print]
    assert not hasattr(load(save(model, tmp_path / "m.certus")), "_skl_callbacks")


def test_equal_models_give_equal_bytes(toy, tmp_path):
    first = save(fitted(toy), tmp_path / "a.certus").read_bytes()
    again = save(copy.deepcopy(fitted(toy)), tmp_path / "b.certus").read_bytes()
    assert first == again


def test_the_file_is_a_safetensors_file(toy, tmp_path):
    path = save(fitted(toy), tmp_path / "m.certus")
    with safetensors.safe_open(path, framework="numpy") as f:
        np.testing.assert_array_equal(f.get_tensor("coef_"), [1.0, -2.0])
        assert json.loads(f.metadata()["certus"])["class"] == "Toy"


def test_the_manifest_can_be_read_without_the_model(toy, tmp_path):
    split = {"sealed": np.array([1, 5]), "seed": 0}
    path = save(fitted(toy), tmp_path / "m.certus", split=split)
    manifest = persist.read_manifest(path)
    assert manifest["schema"] == persist.SCHEMA == 1
    assert manifest["class"] == "Toy"
    assert manifest["feature_names"] == ["a", "b"]
    assert manifest["params"]["alpha"] == 0.5
    assert manifest["certificate"].met
    assert manifest["versions"]["numpy"] == np.__version__
    assert len(manifest["sha256"]) == 64
    np.testing.assert_array_equal(manifest["split"]["sealed"], [1, 5])
    assert persist.read_manifest(save(toy(), path))["feature_names"] is None


# ------------------------------------------------------------------ refused at saving


def my_loss(z):
    return z


class Callable:
    def __call__(self):
        return 0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (my_loss, "function 'my_loss'"),
        (lambda z: z, "never code"),
        (len, "function 'len'"),
        (Callable(), "callable"),
        (Callable, "the class"),
        (TheirRidge(), r"linear_model\._ridge\.Ridge, not a certus model"),
        (types.SimpleNamespace(a=1), "SimpleNamespace"),
        (np.ma.masked_array([1.0]), "Masked"),
        (np.array([1.0], dtype=np.longdouble), "dtype"),
        (np.zeros(2, dtype=[("a", "f8")]), "dtype"),
        (np.random.default_rng(0).bit_generator, "PCG64"),
        (1 << 10_000, "integer"),
        (range(3), "range"),  # a few bytes in a file, any size once it is read
        (Status, "the class"),
    ],
)
def test_objects_that_are_not_data_are_refused_by_name(toy, tmp_path, value, words):
    path = tmp_path / "m.certus"
    with pytest.raises(ModelFileError, match=words) as caught:
        save(toy(inner=[0, {"deep": value}]), path)
    assert "Toy.inner.1.deep" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_value_that_contains_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(ModelFileError, match="contains itself"):
        encode(loop, {})


def test_nesting_within_the_limit_is_saved(toy, tmp_path):
    value = 1
    for _ in range(36):
        value = {1: value}  # three levels of JSON each: the worst case
    assert load(save(toy(alpha=value), tmp_path / "m.certus")).alpha == value


def test_a_class_of_scikit_learn_of_the_same_name_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match=r"only certus models.*joblib"):
        save(TheirRidge(), tmp_path / "m.certus")


def test_an_attribute_that_hides_a_method_is_refused(toy, tmp_path):
    model = toy()
    model.predict = 3
    with pytest.raises(ModelFileError, match=r"Toy\.predict.*hides a method"):
        save(model, tmp_path / "m.certus")


# ---------------------------------------------------------------------- atomic writes


def test_a_failed_write_leaves_the_old_file(toy, tmp_path, monkeypatch):
    path = save(toy(alpha=1), tmp_path / "m.certus")
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(container.os, "fsync", full)
    with pytest.raises(ModelFileError, match=r"m\.certus could not be written: No sp"):
        save(toy(alpha=2), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_leaves_the_old_file(toy, tmp_path, monkeypatch):
    path = save(toy(alpha=1), tmp_path / "m.certus")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(container.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(toy(alpha=2), path)
    assert load(path).alpha == 1
    assert list(tmp_path.iterdir()) == [path]


def test_unwritable_places_are_named(toy, tmp_path):
    with pytest.raises(ModelFileError, match="No such file or directory"):
        save(toy(), tmp_path / "missing" / "m.certus")
    with pytest.raises(ModelFileError, match="directory"):
        save(toy(), tmp_path)
    with pytest.raises(ModelFileError, match="null character"):
        save(toy(), tmp_path / "a\0b")


def test_links_and_permissions_survive(toy, tmp_path):
    real = save(toy(alpha=1), tmp_path / "real.certus")
    os.chmod(real, 0o600)
    link = tmp_path / "link.certus"
    link.symlink_to(real)
    save(toy(alpha=2), link)
    assert link.is_symlink()
    assert load(real).alpha == 2
    assert stat.S_IMODE(os.stat(real).st_mode) == 0o600


def test_importing_persist_loads_no_model():
    code = "import sys, certus.persist; print('certus.linear_model' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
