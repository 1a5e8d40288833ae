"""Tables as people have them: the error on new rows, beside a careful pipeline.

Four tables: 2 % positives, free text, a date, a category with 400 levels. Each is
divided once into rows for ``certus.compare``, which is given nothing but the table, and
new rows. The other side is a scikit-learn pipeline written by hand for that table.

    python -m benchmarks.tables text            # one table, as one line of JSON
    PYTHONPATH=old/src python -m benchmarks.tables text --peer none
    python -m benchmarks.tables text --encoder 60    # what an encoder of texts adds
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
import polars as pl
from sklearn.metrics import log_loss, roc_auc_score, root_mean_squared_error


def rare(rng: np.random.Generator) -> tuple[pl.DataFrame, np.ndarray, int]:
    """2 % positives: a logistic law of two of ten columns."""
    n = 6000
    X = rng.normal(size=(n, 10))
    chance = 1 / (1 + np.exp(5.4 - 1.3 * X[:, 0] - 1.3 * X[:, 1]))
    frame = pl.DataFrame({f"x{i}": X[:, i] for i in range(10)})
    return frame, (rng.random(n) < chance).astype(int), 2000


def text(rng: np.random.Generator) -> tuple[pl.DataFrame, np.ndarray, int]:
    """Docstrings of the standard library: did the word "return" stand in them?"""
    from certus.text import stdlib_docstrings

    found = [" ".join(d.split())[:300] for d in stdlib_docstrings()]
    found = [d for d in dict.fromkeys(found) if len(d) > 30]
    order = rng.permutation(len(found))[:3000]
    chosen = [found[i] for i in order]
    label = np.array(["return" in d.lower() for d in chosen])
    # The word itself is taken out: the rest of the text has to tell.
    plain = [
        " ".join(w for w in d.split() if "return" not in w.lower()) for d in chosen
    ]
    size = pl.Series([len(d) for d in plain])
    return pl.DataFrame({"doc": plain, "letters": size}), label, 1000


def dates(rng: np.random.Generator) -> tuple[pl.DataFrame, np.ndarray, int]:
    """Weekly CO2 in the air (statsmodels): trend and season, from the date alone."""
    from statsmodels.datasets import co2

    data = co2.load_pandas().data.dropna()
    rows = rng.permutation(len(data))
    days = pl.Series("week", data.index.to_numpy().astype("datetime64[us]"))
    return (
        pl.DataFrame({"week": days[rows.tolist()]}),
        data["co2"].to_numpy()[rows],
        800,
    )


def levels(rng: np.random.Generator) -> tuple[pl.DataFrame, np.ndarray, int]:
    """400 levels, each with its own mean, and two numbers."""
    n = 6000
    level = rng.integers(0, 400, n)
    X = rng.normal(size=(n, 2))
    y = 2 * rng.normal(size=400)[level] + X[:, 0] + rng.normal(size=n)
    names = {"shop": [f"s{k}" for k in level], "a": X[:, 0], "b": X[:, 1]}
    return pl.DataFrame(names), y, 2000


TABLES = {"rare": rare, "text": text, "dates": dates, "levels": levels}


def peer(name: str) -> Any:
    """A pipeline by hand, with its penalty chosen by cross-validation."""
    from sklearn.compose import make_column_transformer as columns
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegressionCV, RidgeCV
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.preprocessing import (
        FunctionTransformer,
        SplineTransformer,
        StandardScaler,
        TargetEncoder,
    )

    logistic = LogisticRegressionCV(
        Cs=np.logspace(-3, 3, 7),
        scoring="neg_log_loss",
        max_iter=1000,
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    )
    if name == "rare":
        return make_pipeline(StandardScaler(), logistic)
    if name == "text":
        terms = make_union(
            TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True),
            TfidfVectorizer(
                analyzer="char_wb",
                ngram_range=(3, 5),
                min_df=2,
                sublinear_tf=True,
                max_features=20_000,
            ),
        )
        return make_pipeline(
            columns((terms, "doc"), (StandardScaler(), ["letters"])), logistic
        )
    ridge = RidgeCV(np.logspace(-6, 4, 21))
    if name == "levels":
        return make_pipeline(
            columns(
                (TargetEncoder(random_state=0), ["shop"]),
                (StandardScaler(), ["a", "b"]),
            ),
            ridge,
        )

    def parts(frame: Any) -> Any:
        day = frame["week"].dt
        turn = day.dayofyear.to_numpy() / 365.2425
        years = (frame["week"] - frame["week"].min()).dt.days.to_numpy() / 365.2425
        waves = [f(2 * np.pi * k * turn) for k in (1, 2, 3) for f in (np.sin, np.cos)]
        return np.column_stack([years, *waves])

    curve = columns(
        (SplineTransformer(10, extrapolation="linear"), [0]), remainder="passthrough"
    )
    return make_pipeline(FunctionTransformer(parts), curve, ridge)


def errors(model: Any, X: Any, y: np.ndarray) -> dict[str, float]:
    """RMSE; or log loss, AUC and share of wrong labels."""
    guess = np.asarray(model.predict(X))
    if len(np.unique(y)) > 2:
        return {"rmse": float(root_mean_squared_error(y, guess))}
    found = {"wrong": float(np.mean(guess != y))}
    if hasattr(model, "predict_proba"):
        p = np.asarray(model.predict_proba(X))[:, 1]
        found |= {"auc": roc_auc_score(y, p), "log_loss": log_loss(y, p)}
    return {key: float(value) for key, value in found.items()}


def encoder_gain(seconds: float, seed: int) -> dict[str, Any]:
    """Log loss with terms of the text, with vectors of an encoder, and with both.

    The encoder learns for so many seconds from the texts that models learn from.
    """
    from scipy import sparse

    from certus.language import SentenceEncoder
    from certus.linear_model import LogisticRegressionCV
    from certus.tables import TableEncoder

    X, y, n = text(np.random.default_rng(seed))
    terms = TableEncoder().fit(X[:n])
    start = time.process_time()
    made = SentenceEncoder(max_time=seconds, random_state=seed)
    made.fit(X["doc"][:n].to_list())
    spent = time.process_time() - start
    E = made.transform(X["doc"].to_list())
    E = (E - E[:n].mean(axis=0)) / E[:n].std(axis=0)
    Z = terms.transform(X)
    sides = {"terms": Z, "encoder": E, "both": sparse.hstack([Z, E], format="csr")}
    line: dict[str, Any] = {"seed": seed, "cpu": round(spent, 1)}
    for name, side in sides.items():
        model = LogisticRegressionCV(
            Cs=np.logspace(-3, 3, 7),
            cv=3,
            scoring="neg_log_loss",
            use_legacy_attributes=False,
        ).fit(side[:n], y[:n])
        p = model.predict_proba(side[n:])[:, 1]
        line[name] = {
            "log_loss": round(log_loss(y[n:], p), 3),
            "auc": round(roc_auc_score(y[n:], p), 3),
        }
    return line


def main() -> None:
    """Print the errors of one table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--peer", choices=("sklearn", "none"), default="sklearn")
    parser.add_argument("--encoder", type=float, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.encoder is not None:
        print(json.dumps(encoder_gain(args.encoder, args.seed)))
        return
    import certus

    X, y, n = TABLES[args.table](np.random.default_rng(args.seed))
    start = time.process_time()
    found = certus.compare(X[:n], y[:n])
    line: dict[str, Any] = {
        "table": args.table,
        "rows": n,
        "new": len(y) - n,
        "chosen": found.chosen,
        "cpu": round(time.process_time() - start, 1),
        "certus": errors(found.model, X[n:], y[n:]),
    }
    if args.peer == "sklearn":
        old, new = X[:n].to_pandas(), X[n:].to_pandas()
        line["sklearn"] = errors(peer(args.table).fit(old, y[:n]), new, y[n:])
    print(json.dumps(line))


if __name__ == "__main__":
    main()
