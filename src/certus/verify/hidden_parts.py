"""Hidden parts of rows that an encoder fills in.

The verifier hides parts of the rows given, with draws of its own, and lets the model
fill them in (``reconstruct``). A row is restored where the mean squared error of what
was hidden is below that of a simple filling: the mean of what is visible of the row, or
the stored means of the columns. Of hidden tokens one of each row is asked for. What is
filled in may not change by a bit if what is hidden changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number
from certus.verify.right_shares import images_of, not_arrays, share_claim
from certus.verify.stating import require

#: Rows whose hidden parts are changed.
CHANGED = 64


class Masks(NamedTuple):
    """Side of hidden blocks of images, and the share that is hidden."""

    patch: int
    share: float


class Hidden(NamedTuple):
    """Rows as numbers, what is hidden of them, and a simple filling."""

    rows: list[Array]
    masks: list[Array]
    plain: list[Array]
    scale: Array


def mask_claims(model: Any, stated: Masks, X: Any, rng: Any, seen: bool) -> list[Claim]:
    """What is filled in, beside a simple filling, and whether anything leaks."""
    kind = model.inputs_["kind"]
    if kind == "sequences":  # of an empty one nothing can be hidden
        X = [x for x in X if len(x)]
        require(bool(X), "all of these sequences are empty")
    if kind == "sequences" and model.inputs_["tokens"] is not None:
        return _token_claims(model, stated, X, rng, seen)
    found = _hidden_images(model, stated, X, rng) if kind == "images" else None
    if kind == "images" and found is None:
        return not_arrays("hidden_loss")
    if found is None:
        found = _hidden_rows(model, stated, X, rng)
    shown = _as_masks(model, found)
    told = _numbers(model, model.reconstruct(X, shown), found)
    ours, simple = (_errors(found, guess) for guess in (told, found.plain))
    right = np.array(ours) < np.array(simple)
    other = "the means of the columns" if kind == "rows" else "the mean of the rest"
    loss, beside = float(np.mean(ours)), float(np.mean(simple))
    measured = bd.measured(
        *("hidden_loss", loss),
        f"the error in hidden parts is {loss:.3g}; with {other} it would be "
        f"{beside:.3g}",
        objective="mean squared error of hidden parts / variance, over "
        f"{len(right):,} rows held out",
    )
    words = (
        f"{{between}} of new rows are filled in better than by {other}",
        f"P(error of the hidden part < that of {other})",
    )
    # Columns may say nothing about each other: then means are the best there is.
    claim = share_claim("restored", right, 0.5, seen, words, flag=False)
    return [measured, claim, _leak_claim(model, X, found, shown)]


def hidden_parts(n: int, parts: int, share: float, rng: Any) -> Array:
    """Which parts of n rows are hidden: at least one, and not all if there are two."""
    count = min(max(1, round(share * parts)), max(1, parts - 1))
    order = rng.random((n, parts)).argsort(axis=1).argsort(axis=1)
    return np.asarray(order < count)


def _hidden_images(model: Any, stated: Masks, X: Any, rng: Any) -> Hidden | None:
    A = images_of(model, X)
    if A is None:
        return None
    n, _, h, w = A.shape
    p = stated.patch
    rows, columns = -(-h // p), -(-w // p)
    blocks = hidden_parts(n, rows * columns, stated.share, rng)
    blocks = blocks.reshape(n, rows, columns)
    whole = blocks.repeat(p, axis=1).repeat(p, axis=2)[:, None, :h, :w]
    mask = np.broadcast_to(whole, A.shape)
    counts = np.maximum((~mask).sum(axis=(2, 3)), 1)
    mean = np.where(mask, 0.0, A).sum(axis=(2, 3)) / counts
    all_gone = mask.all(axis=(1, 2, 3))
    mean[all_gone] = np.asarray(model.inputs_["mean"], dtype=np.float64)
    plain = np.broadcast_to(mean[:, :, None, None], A.shape)
    scale = A.std(axis=(0, 2, 3))[:, None, None]
    return Hidden(list(A), list(mask), list(plain), np.where(scale > 0, scale, 1.0))


def _hidden_rows(model: Any, stated: Masks, X: Any, rng: Any) -> Hidden:
    """Table rows, or sequences of numbers."""
    centre = np.asarray(model.inputs_["mean"], dtype=np.float64)
    if model.inputs_["kind"] == "rows":
        A = np.asarray(X, dtype=np.float64)
        mask = hidden_parts(len(A), A.shape[1], stated.share, rng)
        plain = [centre] * len(A)
        scale = A.std(axis=0)
        return Hidden(list(A), list(mask), plain, np.where(scale > 0, scale, 1.0))
    rows = [np.asarray(x, dtype=np.float64).reshape(len(x), -1) for x in X]
    masks, plain = [], []
    for row in rows:
        steps = hidden_parts(1, len(row), stated.share, rng)[0]
        left = row[~steps]
        masks.append(np.repeat(steps[:, None], row.shape[1], axis=1))
        plain.append(np.tile(left.mean(axis=0) if len(left) else centre, (len(row), 1)))
    scale = np.concatenate(rows).std(axis=0)
    return Hidden(rows, masks, plain, np.where(scale > 0, scale, 1.0))


def _as_masks(model: Any, found: Hidden) -> Any:
    """What is hidden, as ``reconstruct`` takes it."""
    if model.inputs_["kind"] == "images":
        return np.stack([mask[0] for mask in found.masks])
    if model.inputs_["kind"] == "rows":
        return np.stack(found.masks)
    return [mask[:, 0] for mask in found.masks]


def _numbers(model: Any, told: Any, found: Hidden) -> list[Array]:
    """What the model filled in, as numbers in the shapes of the rows."""
    images = model.inputs_["kind"] == "images"
    rows: Any = images_of(model, told) if images else told
    require(rows is not None and len(rows) == len(found.rows), "it loses rows")
    rows = [np.asarray(row, dtype=np.float64) for row in rows]
    alike = all(a.size == b.size for a, b in zip(rows, found.rows))
    require(alike, "it does not fill in all parts")
    rows = [a.reshape(b.shape) for a, b in zip(rows, found.rows)]
    require(all(np.isfinite(a).all() for a in rows), "it fills in NaN or infinity")
    return rows


def _errors(found: Hidden, guess: list[Array]) -> list[float]:
    """The mean squared error of what is hidden, for each row."""
    whole = []
    for row, mask, told in zip(found.rows, found.masks, guess):
        off = np.square((told - row) / found.scale)
        whole.append(float(off[mask].mean()))
    return whole


def _leak_claim(model: Any, X: Any, found: Hidden, shown: Any) -> Claim:
    """Whether hidden numbers reach what is filled in."""
    n = min(len(found.rows), CHANGED)
    some = X.iloc[:n] if hasattr(X, "iloc") else X[:n]
    masks = shown[:n]
    changed: Any = []
    for i in range(n):
        # Other numbers, within what rows can hold: the same ones in another order.
        mixed = np.roll(found.rows[i].ravel(), 1).reshape(found.rows[i].shape)
        changed.append(np.where(found.masks[i], mixed, found.rows[i]))
    if model.inputs_["kind"] == "images":
        changed = _as_given(model, np.stack(changed), some)
    elif model.inputs_["kind"] == "rows":
        changed = np.stack(changed)
    one, two = (model.reconstruct(rows, masks) for rows in (some, changed))
    cells = _numbers(model, one, found._replace(rows=found.rows[:n]))
    others = _numbers(model, two, found._replace(rows=found.rows[:n]))
    wrong = sum(
        not np.array_equal(a[mask], b[mask])
        for a, b, mask in zip(cells, others, found.masks)
    )
    return leak_claim(wrong, n)


def leak_claim(wrong: int, n: int) -> Claim:
    """The claim about rows in which what is hidden was changed."""
    return bd.proved(
        *("no_leak", Number(float(wrong)), 0.0),
        f"the values filled in do not depend on the hidden values, for {n:,} rows",
        missed="the values filled in depend on the hidden values, for "
        f"{wrong:,} of {n:,} rows",
        objective="rows in which other values are filled in if hidden parts change",
        theorem="the values filled in before and after were compared bit by bit",
        fix="restore the model file",
    )


def _as_given(model: Any, A: Array, like: Any) -> Any:
    """Images in the layout, and the dtype, of those that were given."""
    _, first, flat = model.inputs_["layout"]
    A = A[:, 0] if len(model.inputs_["layout"][0]) == 2 else A
    A = A if A.ndim == 3 or first else np.moveaxis(A, 1, 3)
    A = A.reshape(len(A), -1) if flat else A
    return A.astype(np.asarray(like).dtype)


def _token_claims(
    model: Any, stated: Masks, X: Any, rng: Any, seen: bool
) -> list[Claim]:
    """Hidden tokens that are found, one of each sequence."""
    rows = [list(x) for x in X]
    masks = [hidden_parts(1, len(x), stated.share, rng)[0] for x in rows]
    told = model.reconstruct(X, masks)
    asked = [int(rng.choice(np.flatnonzero(mask))) for mask in masks]
    truth = [row[i] for row, i in zip(rows, asked)]
    right = np.array([t[i] == a for t, i, a in zip(told, asked, truth)])
    names, counts = np.unique(np.array([str(t) for t in truth]), return_counts=True)
    chance, share = float(counts.max()) / len(truth), float(1 - right.mean())
    common = str(names[counts.argmax()])
    measured = bd.measured(
        *("hidden_loss", share),
        f"{100 * share:.3g} % of hidden tokens are predicted wrongly; with "
        f"{common!r} for all of them it would be {100 * (1 - chance):.3g} %",
        objective=f"share of hidden tokens predicted wrongly, {len(truth):,} rows",
    )
    words = (
        "{between} of hidden tokens of new rows are predicted correctly; by always "
        f"guessing {common!r}, {100 * chance:.3g} %",
        "P(the hidden token is predicted correctly)",
    )
    claim = share_claim("restored", right, chance, seen, words, flag=False)
    n = min(len(rows), CHANGED)
    known = list(model.inputs_["tokens"])
    swapped = [
        [known[int(rng.integers(len(known)))] if gone else t for t, gone in zip(x, m)]
        for x, m in zip(rows[:n], masks[:n])
    ]
    one, two = (model.reconstruct(part, masks[:n]) for part in (rows[:n], swapped))
    wrong = sum(
        [a for a, gone in zip(x, m) if gone] != [b for b, gone in zip(y, m) if gone]
        for x, y, m in zip(one, two, masks)
    )
    return [measured, claim, leak_claim(wrong, n)]
