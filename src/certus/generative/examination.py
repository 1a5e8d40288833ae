"""What an examination of synthetic rows found: fields, tables, a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from certus.certificate import Claim
from certus.rendering import claim_lines
from certus.results import TableResult, draw_intervals

__all__ = ["ColumnDistance", "Examination"]


@dataclass(frozen=True)
class ColumnDistance:
    """How far synthetic rows are from held-out rows in one column, or one pair.

    Attributes
    ----------
    name : str
        The column; two names with × between them for a pair.
    kind : {"numbers", "labels", "pair"}
    value, low, high : float
        The distance observed, and a band that holds for all columns, or pairs, at
        once: the largest difference of two distribution functions for numbers, total
        variation for labels and pairs.
    """

    name: str
    kind: str
    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        """The distance as JSON-ready data."""
        return dict(vars(self))


@dataclass(frozen=True)
class Examination(TableResult):
    """What can be said about synthetic rows; made by :func:`examine`.

    Attributes
    ----------
    n_real, n_holdout, n_synthetic : int
        Rows of the three tables.
    nearest_share : float
        Share of synthetic rows whose nearest real row is a training row; ½ if none is
        favoured.
    p_value : float
        Chance of such a share or a larger one if training rows were not favoured.
    excess_low, excess_high : float
        Interval for the excess of that share over ½.
    copies : int
        Synthetic rows that equal a training row in every cell.
    copy_share, holdout_copy_share : float
        Share of synthetic rows, and of held-out rows, that equal a training row.
    copy_p_value : float
        As ``p_value``, for exact copies.
    membership_auc, membership_low, membership_high : float
        Whether training rows are nearer to synthetic rows than new rows are.
    told_apart_auc : float or None
        AUC of a classifier that tells synthetic from held-out rows.
    real_score, synthetic_score : float or None
        Accuracy or R² on held-out rows, of a model learnt from training rows and of
        one learnt from synthetic rows.
    columns, pairs : tuple of ColumnDistance
        Distances by column and by pair of columns.
    target : str or None
        The column that was predicted.
    coin : float or None
        Probability of a row to become a training row, if coins decided.
    delta : float
        Failure probability of each claim.
    seed : int
        Seed of all random numbers, for a second examination.
    claims : tuple of Claim
        Everything above with its strength, made by the verifier.
    """

    n_real: int
    n_holdout: int
    n_synthetic: int
    nearest_share: float
    p_value: float
    excess_low: float
    excess_high: float
    copies: int
    copy_share: float
    holdout_copy_share: float
    copy_p_value: float
    membership_auc: float
    membership_low: float
    membership_high: float
    told_apart_auc: float | None
    real_score: float | None
    synthetic_score: float | None
    columns: tuple[ColumnDistance, ...]
    pairs: tuple[ColumnDistance, ...]
    target: str | None
    coin: float | None
    delta: float
    seed: int
    claims: tuple[Claim, ...] = field(repr=False)

    def __getitem__(self, name: str) -> Claim:
        for claim in self.claims:
            if claim.name == name:
                return claim
        have = ", ".join(claim.name for claim in self.claims)
        raise KeyError(f"there is no claim {name!r}; there are: {have}")

    @property
    def flagged(self) -> bool:
        """Whether the rows are shown to copy training rows.

        That is, the excess share is above 0.05 with probability 1 − ``delta``; or more
        rows are exact copies than among held-out rows, by more than chance explains.
        """
        return any(self[name].met is False for name in ("memorised", "exact_copies"))

    @property
    def shapes(self) -> float:
        """1 − the mean distance over the columns: 1 is perfect."""
        return 1.0 - float(np.mean([column.value for column in self.columns]))

    @property
    def verdict(self) -> str:
        """The finding in a sentence or two."""
        if self["holdout_unseen"].met is False:
            return (
                "The generator has seen the held-out rows, so no other number here "
                "counts."
            )
        if self.flagged:
            return (
                f"These rows copy training rows: {self.copies:,} of "
                f"{self.n_synthetic:,} are exact copies, and "
                f"{100 * self.nearest_share:.1f} % lie nearest to a training row (50 % "
                "if none were favoured)."
            )
        sure = self["memorised"].met
        known = (
            "No copying was found"
            if sure
            else "Copying was neither found nor ruled out"
        )
        most = max(column.high for column in self.columns)
        return (
            f"{known} in {self.n_synthetic:,} rows, and each column agrees with "
            f"held-out rows within {most:.3f}."
        )

    def recheck(self, real: Any, holdout: Any, synthetic: Any) -> tuple[str, ...]:
        """Examine again with the same seed; names of claims that do not come out alike.

        Parameters
        ----------
        real, holdout, synthetic : frame, array or path
            The tables, as for :func:`examine`.

        Returns
        -------
        tuple of str
            Empty if all claims are confirmed.
        """
        from certus.generative.examining import examine_with

        again = examine_with(
            *(real, holdout, synthetic),
            target=self.target,
            coin=self.coin,
            delta=self.delta,
            seed=self.seed,
        )
        differ = [c.name for c in again.claims if not _agrees(self._stated(c.name), c)]
        fields = ("p_value", "copy_p_value", "copies", "nearest_share", "n_synthetic")
        differ += [f for f in fields if getattr(self, f) != getattr(again, f)]
        return tuple(differ)

    def _stated(self, name: str) -> Claim | None:
        return next((claim for claim in self.claims if claim.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """The fields and claims as JSON-ready data."""
        more = {"flagged": self.flagged, "claims": [c.to_dict() for c in self.claims]}
        return super().to_dict() | more

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Examination:
        """Inverse of :meth:`to_dict`.

        Parameters
        ----------
        data : dict
            What ``to_dict`` returned, or JSON that was read back.
        """
        lacks = [f.name for f in fields(cls) if f.name not in data]
        if lacks:
            raise ValueError(
                f"data must be what to_dict returned, but it lacks {lacks[0]!r}."
            )
        values = {f.name: data[f.name] for f in fields(cls)}
        for name in ("columns", "pairs"):
            values[name] = tuple(ColumnDistance(**each) for each in data[name])
        values["claims"] = tuple(Claim.from_dict(each) for each in data["claims"])
        return cls(**values)

    def _columns(self) -> Mapping[str, Any]:
        names = ("name", "kind", "value", "low", "high")
        return {name: [getattr(c, name) for c in self.columns] for name in names}

    def _notes(self) -> Iterable[str]:
        return [f"{c.mark} {c.label}: {c.detail}" for c in self.claims]

    def plot(self, ax: Any = None) -> Any:
        """Draw the distance of each column with its band.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on; None means a new figure.

        Returns
        -------
        matplotlib axes
        """
        order = sorted(self.columns, key=lambda column: -column.value)[:30]
        ax = draw_intervals(
            [c.name for c in order],
            [c.value for c in order],
            [c.low for c in order],
            [c.high for c in order],
            "distance between synthetic and held-out rows (0 is perfect)",
            ax,
        )
        ax.set_xlim(left=0.0)
        return ax

    def __str__(self) -> str:
        lines = [line for claim in self.claims for line in claim_lines(claim)]
        return "\n".join([self.verdict, "", *lines])

    def __repr__(self) -> str:  # the prompt shows the text; the data are in to_dict()
        return str(self)


#: Claims that rest on a classifier, which another number of threads may fit otherwise.
_LEARNT = ("told_apart", "useful")


def _agrees(stated: Claim | None, found: Claim) -> bool:
    if stated is None or (stated.strength, stated.met) != (found.strength, found.met):
        return False
    if stated.value is None or found.value is None:
        return stated.value is found.value
    room = 0.02 if found.name in _LEARNT else 1e-9
    return abs(stated.value - found.value) <= room
