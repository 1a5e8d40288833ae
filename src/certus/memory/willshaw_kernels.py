"""Compiled retrieval from a Willshaw memory whose columns are packed into bits.

z_j ≥ r, with r ones in the cue, says that column entries of output j are one for all of
them: retrieval is the bitwise AND of the packed columns.
"""

from __future__ import annotations

from certus._core.cache import kernel


@kernel
def retrieve(cues, columns, out):
    """AND of the columns at the ones of each cue; all ones where there is none."""
    for row in range(cues.shape[0]):
        found = out[row]
        for i in range(cues.shape[1]):
            if cues[row, i]:
                for word in range(columns.shape[1]):
                    found[word] &= columns[i, word]
