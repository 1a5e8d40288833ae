"""Our packages are scikit-learn's: replacing the word in an import is enough."""

import inspect
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import certus
from certus.cli import main
from certus.cli.migrating import PACKAGES, rewrite, shared
from certus.registry import ESTIMATORS, load_class

ROWS = list(ESTIMATORS.values())


@pytest.mark.parametrize("row", [r for r in ROWS if r.shared], ids=lambda r: r.name)
def test_a_shared_class_stands_in_the_package_of_the_same_name(row):
    theirs = getattr(import_module(f"sklearn.{row.home}"), row.name)
    ours = getattr(import_module(f"certus.{row.home}"), row.name)
    assert ours is load_class(row) and ours is not theirs
    assert inspect.isclass(theirs) and ours.__module__.startswith("certus.")


def test_every_public_class_that_can_be_fitted_has_a_row():
    found = {}
    for package in certus._PACKAGES:
        module = import_module(f"certus.{package}")
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            # certus.graph also has estimators of packages that scikit-learn has.
            own = package != "graph" or ".graph." in value.__module__
            if own and inspect.isclass(value) and hasattr(value, "fit"):
                found[name] = package
    # EM takes a user's own model of latent variables, and is not one itself.
    assert found.pop("EM") == "mixture"
    assert found == {row.name: row.home for row in ROWS}


def test_the_registry_marks_classes_that_scikit_learn_has():
    for row in ROWS:
        try:
            theirs = import_module(f"sklearn.{row.home}")
        except ModuleNotFoundError:
            assert not row.shared, row.name
            continue
        assert row.shared == hasattr(theirs, row.name), row.name


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_only_scikit_learn_has_gets_a_helpful_error(package):
    module = import_module(f"certus.{package}")
    theirs = import_module(f"sklearn.{package}")
    for name in set(getattr(theirs, "__all__", ())) - set(module.__all__):
        with pytest.raises(ImportError, match=f"certus.{package} has no {name}"):
            getattr(module, name)
    assert not hasattr(module, "no_such_name")


def test_a_package_that_only_scikit_learn_has_is_not_there():
    for name in ("discriminant_analysis", "gaussian_process", "naive_bayes"):
        import_module(f"sklearn.{name}")
        with pytest.raises(ModuleNotFoundError):
            import_module(f"certus.{name}")


SCRIPT = """\
\"\"\"Ünïcode before an import.\"\"\"
from sklearn.linear_model import (
    Lasso,  # stays where it is
    Ridge as R,
)
from sklearn.svm import SVC, NuSVC as N
from sklearn import svm, tree, cluster as c
import sklearn.cluster as sc
import sklearn.mixture as sm, os
if True:
    x = 1; from sklearn.neighbors import KDTree, KNeighborsClassifier
    from sklearn.decomposition import PCA, FastICA
print(svm.SVC, tree, getattr(c, "KMeans"), sc.DBSCAN, sm.GaussianMixture)
"""
MIGRATED = """\
\"\"\"Ünïcode before an import.\"\"\"
from certus.linear_model import (
    Lasso,  # stays where it is
    Ridge as R,
)
from certus.svm import SVC
from sklearn.svm import NuSVC as N
from certus import svm
from sklearn import tree, cluster as c
import sklearn.cluster as sc
import certus.mixture as sm, os
if True:
    x = 1; from certus.neighbors import KNeighborsClassifier; \
from sklearn.neighbors import KDTree
    from certus.decomposition import PCA
    from sklearn.decomposition import FastICA
print(svm.SVC, tree, getattr(c, "KMeans"), sc.DBSCAN, sm.GaussianMixture)
"""


def test_migrate_rewrites_exactly_the_imports_of_names_we_have():
    assert rewrite(SCRIPT) == MIGRATED
    assert rewrite(MIGRATED) == MIGRATED
    windows = SCRIPT.replace("\n", "\r\n")
    assert rewrite(windows).replace("\r\n", "\n") == MIGRATED


def test_migrate_knows_every_shared_name():
    for package in PACKAGES:
        for name in shared(package):
            line = f"from sklearn.{package} import {name}"
            assert rewrite(line) == line.replace("sklearn", "certus")
            exec(rewrite(line), {})


def test_migrate_shows_a_diff_and_writes_on_request(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("from sklearn.svm import SVC\n", "utf-8")
    assert main(["migrate", str(script)]) == 0
    out = capsys.readouterr()
    assert "-from sklearn.svm import SVC\n+from certus.svm import SVC\n" in out.out
    assert script.read_text("utf-8") == "from sklearn.svm import SVC\n"
    assert main(["migrate", "--write", str(script)]) == 0
    assert script.read_text("utf-8") == "from certus.svm import SVC\n"
    assert main(["migrate", str(script)]) == 0
    assert "nothing to change" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("script.py", b"from sklearn import (", "not Python"),
        ("script.py", b"x = '\xff'", "UTF-8"),
        ("book.ipynb", b"{}", "not a Python script"),
    ],
)
def test_migrate_says_what_it_cannot_read(name, content, told, tmp_path, capsys):
    path = Path(tmp_path / name)
    path.write_bytes(content)
    assert main(["migrate", str(path)]) in (1, 2)
    assert told in " ".join(capsys.readouterr().err.split())
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        ("import certus.registry", "sklearn"),
        ("from certus.neural_network import MLPClassifier", "torch"),
        ("import certus.linear_model, certus.text, certus.neural_network", "numba"),
        (
            "from certus.linear_model import Lasso; "
            "Lasso().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 3.0]).certificate_.met",
            "certus.verify.adversarial",
        ),
    ],
)
def test_an_import_loads_no_more_than_it_needs(line, absent):
    code = f"import sys; {line}; print({absent!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_every_public_package_is_a_name_of_certus():
    """What has no door of its own is used through names of certus itself."""
    folders = {m.name for m in pkgutil.iter_modules(certus.__path__) if m.ispkg}
    public = {name for name in folders if not name.startswith("_")}
    others = {"blocks", "cli", "engines", "persist", "searches"}
    assert public - others == set(certus._PACKAGES)
    assert set(certus._PACKAGES) <= set(certus.__all__) == set(dir(certus))


def test_the_helpful_error_reaches_an_import_statement():
    with pytest.raises(
        ImportError, match=r"has no BayesianRidge.*certus\.certify says"
    ):
        exec("from certus.linear_model import BayesianRidge", {})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ["linear_model.HuberRegressor", "svm.LinearSVC"])
def test_a_suggested_fix_names_our_class_by_its_place(name):
    home, _, cls = name.partition(".")
    X = np.random.default_rng(0).normal(size=(30, 3)) * [1, 10, 100]
    theirs = getattr(import_module(f"sklearn.{home}"), cls)(max_iter=1)
    y = X[:, 0] > 0 if cls == "LinearSVC" else X[:, 0]
    found = certus.certify(theirs.fit(X, y), X, y)
    assert f"certus.{name}" in found.claims[0].fix
