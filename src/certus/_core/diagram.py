"""The certificate in scikit-learn's diagrams, of a model and of a pipeline around it.

scikit-learn draws a box for each step. A model of ours has one line of its certificate
below its name, and all of it when the box is opened.
"""

from __future__ import annotations

import warnings
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

#: The model that is drawn alone; its certificate is shown below the drawing.
ALONE: ContextVar[Any] = ContextVar("alone", default=None)


class Unfolded:
    """A table of scikit-learn's with something below it."""

    def __init__(self, table: Any, below: str = "") -> None:
        self.table, self.below = table, below

    def __len__(self) -> int:
        return len(self.table) + len(self.below)

    def _repr_html_inner(self) -> str:
        with warnings.catch_warnings():
            # Its reader of docstrings does not know our sections and says so.
            warnings.filterwarnings("ignore", "Unknown section", UserWarning)
            table = self.table._repr_html_inner() if len(self.table) else ""
        return f"{table}{self.below}"


def block_of(model: Any, caption: str) -> Any:
    """The box of a model with a line below its name, by the fields that are drawn.

    Raises AttributeError where the model has models inside, which are drawn beside one
    another.
    """
    inside = model.get_params(deep=False).values()
    if any(hasattr(part, "fit") and hasattr(part, "get_params") for part in inside):
        raise AttributeError("_sk_visual_block_")
    return SimpleNamespace(
        kind="single",
        estimators=model,
        names=type(model).__name__,
        name_details=str(model),
        name_caption=caption,
        doc_link_label=None,
        dash_wrapped=True,
    )
