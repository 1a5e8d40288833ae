"""Fair draws of tables whose rows repeat are flagged as copies as rarely as stated."""

from __future__ import annotations

import numpy as np

from certus.verify import sample_claims

DELTA, DRAWS = 0.1, 200


def test_more_copies_than_held_out_rows_is_chance_half_of_the_time() -> None:
    """Hence "more" is tested: a larger share alone does not flag rows."""
    flagged, more, undecided = 0, 0, 0
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        tables = rng.geometric(0.25, (3, 4, 120)).astype(float)
        columns = {f"x{j}": tuple(tables[:, j]) for j in range(4)}
        near = sample_claims(columns, delta=DELTA, coin=None, seed=seed)[0]
        claim = next(c for c in near.claims if c.name == "exact_copies")
        flagged += claim.met is False
        undecided += claim.met is None
        more += near.copy_share > near.holdout_copy_share
    assert flagged <= DELTA * DRAWS + 3 * np.sqrt(DELTA * (1 - DELTA) * DRAWS)
    assert 0.35 * DRAWS < more < 0.65 * DRAWS
    assert undecided == more - flagged


def test_a_tenth_of_copies_is_flagged_there_as_well() -> None:
    found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        tables = rng.geometric(0.25, (3, 4, 600)).astype(float)
        tables[2][:, :90] = tables[0][:, :90]
        columns = {f"x{j}": tuple(tables[:, j]) for j in range(4)}
        near = sample_claims(columns, delta=DELTA, coin=None, seed=seed)[0]
        claim = next(c for c in near.claims if c.name == "exact_copies")
        found += claim.met is False
    assert found >= 36
