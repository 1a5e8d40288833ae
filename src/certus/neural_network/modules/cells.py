"""Recurrent cells written out: the state of a sequence, one step at a time.

    hᵗ = F(hᵗ⁻¹, xᵗ)   with F an Elman cell, an LSTM or a GRU

Slow, and plain to read; torch's fused layers compute the same numbers. Here one can
look at the gates, and at the gradients of backpropagation through time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from certus.neural_network.modules.arguments import require_choice

Values = dict[str, Tensor]
Function = Callable[[Tensor], Tensor]
#: Functions σ, each with its slope as a function of its value.
ACTIVATIONS: dict[str, tuple[Function, Function]] = {
    "tanh": (torch.tanh, lambda h: 1 - h * h),
    "relu": (torch.relu, lambda h: (h > 0).to(h.dtype)),
    "logistic": (torch.sigmoid, lambda h: h * (1 - h)),
    "identity": (lambda a: a, torch.ones_like),
}


class Cell(nn.Module):
    """What the cells share: weights on the state and on the input; abstract.

    The weights of several gates are stacked as rows, in the order of ``PARTS``, as
    in torch's layers.
    """

    PARTS: tuple[str, ...]
    #: What is carried from step to step.
    CARRIED: tuple[str, ...] = ("state",)

    def __init__(self, n_inputs: int, hidden: int) -> None:
        super().__init__()
        self.config: dict[str, Any] = {"n_inputs": n_inputs, "hidden": hidden}
        self.hidden, rows = hidden, hidden * len(self.PARTS)
        self.W = nn.Parameter(torch.empty(rows, hidden))
        self.U = nn.Parameter(torch.empty(rows, n_inputs))
        self.b = nn.Parameter(torch.zeros(rows))
        for W, U in zip(self.W.chunk(len(self.PARTS)), self.U.chunk(len(self.PARTS))):
            nn.init.orthogonal_(W)
            nn.init.xavier_uniform_(U)

    def start(self, batch: int) -> Values:
        """The state before a sequence: zeros."""
        return {name: self.W.new_zeros(batch, self.hidden) for name in self.CARRIED}

    def forward(self, x: Tensor, before: Values) -> Values:
        """One step: from (batch, n_inputs) and a state to gates and the next state."""
        raise NotImplementedError


class ElmanCell(Cell):
    """The simple recurrence hᵗ = σ(W hᵗ⁻¹ + U xᵗ + b).

    Parameters
    ----------
    n_inputs : int
        Numbers at each step.
    hidden : int
        Numbers in the state.
    activation : {"tanh", "relu", "logistic", "identity"}, default="tanh"
        The function σ.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import ElmanCell, unroll
    >>> unroll(ElmanCell(2, 3), torch.zeros(5, 7, 2))["state"].shape
    torch.Size([5, 7, 3])
    """

    PARTS = ("state",)

    def __init__(self, n_inputs: int, hidden: int, activation: str = "tanh") -> None:
        super().__init__(n_inputs, hidden)
        require_choice("activation", activation, tuple(ACTIVATIONS))
        self.config["activation"] = activation

    def forward(self, x: Tensor, before: Values) -> Values:
        """One step; gives "state"."""
        sigma, _ = ACTIVATIONS[self.config["activation"]]
        return {"state": sigma(before["state"] @ self.W.T + x @ self.U.T + self.b)}


class LSTMCell(Cell):
    """Long short-term memory: a memory C that gates write, keep and read.

    i, f, o = σ(W hᵗ⁻¹ + U xᵗ + b), each with its own weights; C̃ = tanh(…) likewise;
    Cᵗ = f ∗ Cᵗ⁻¹ + i ∗ C̃ and hᵗ = o ∗ tanh Cᵗ. The forget gate's bias begins at 1,
    so that memory is kept until there is a reason to drop it.

    Parameters
    ----------
    n_inputs : int
        Numbers at each step.
    hidden : int
        Numbers in the state, and in the memory.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import LSTMCell, unroll
    >>> sorted(unroll(LSTMCell(2, 3), torch.zeros(5, 7, 2)))
    ['candidate', 'forget', 'input', 'memory', 'output', 'state']
    """

    PARTS = ("input", "forget", "candidate", "output")
    CARRIED = ("state", "memory")

    def __init__(self, n_inputs: int, hidden: int) -> None:
        super().__init__(n_inputs, hidden)
        with torch.no_grad():
            self.b.chunk(4)[1].fill_(1.0)

    def forward(self, x: Tensor, before: Values) -> Values:
        """One step; gives the three gates, the candidate, the memory and the state."""
        parts = before["state"] @ self.W.T + x @ self.U.T + self.b
        i, f, candidate, o = parts.chunk(4, dim=1)  # (batch, hidden) each
        i, f, o = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o)
        candidate = torch.tanh(candidate)
        memory = f * before["memory"] + i * candidate
        return {
            "input": i,
            "forget": f,
            "output": o,
            "candidate": candidate,
            "memory": memory,
            "state": o * torch.tanh(memory),
        }


class GRUCell(Cell):
    """Gated recurrent unit: hᵗ = (1 − z) ∗ hᵗ⁻¹ + z ∗ h̃.

    z, r = σ(W hᵗ⁻¹ + U xᵗ + b), each with its own weights. The candidate is
    h̃ = tanh(W(r ∗ hᵗ⁻¹) + U xᵗ + b), or, with the reset after the product as torch has
    it, h̃ = tanh(r ∗ (W hᵗ⁻¹ + b′) + U xᵗ + b). (torch calls 1 − z what is z here.)

    Parameters
    ----------
    n_inputs : int
        Numbers at each step.
    hidden : int
        Numbers in the state.
    reset : {"before", "after"}, default="before"
        Whether the reset gate acts before the product with W or after it.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import GRUCell, unroll
    >>> sorted(unroll(GRUCell(2, 3), torch.zeros(5, 7, 2)))
    ['candidate', 'reset', 'state', 'update']
    """

    PARTS = ("reset", "update", "candidate")

    def __init__(self, n_inputs: int, hidden: int, reset: str = "before") -> None:
        super().__init__(n_inputs, hidden)
        require_choice("reset", reset, ("before", "after"))
        self.config["reset"] = reset
        if reset == "after":
            self.b_state = nn.Parameter(torch.zeros(hidden))

    def forward(self, x: Tensor, before: Values) -> Values:
        """One step; gives both gates, the candidate and the state."""
        h, H = before["state"], 2 * self.hidden
        parts = x @ self.U.T + self.b  # (batch, 3 hidden)
        r, z = torch.sigmoid(parts[:, :H] + h @ self.W[:H].T).chunk(2, dim=1)
        if self.config["reset"] == "before":
            carried = (r * h) @ self.W[H:].T
        else:
            carried = r * (h @ self.W[H:].T + self.b_state)
        candidate = torch.tanh(parts[:, H:] + carried)
        state = (1 - z) * h + z * candidate
        return {"reset": r, "update": z, "candidate": candidate, "state": state}


def unroll(cell: Cell, x: Tensor, start: Values | None = None) -> Values:
    """Carry a cell along sequences: the layer at step t takes the state of t − 1.

    Parameters
    ----------
    cell : ElmanCell, LSTMCell or GRUCell
        The same weights at every step.
    x : Tensor of shape (batch, time, n_inputs)
        Sequences.
    start : dict, optional
        The state before the first step; zeros by default.

    Returns
    -------
    dict of Tensor of shape (batch, time, hidden)
        Everything a step gives, at each of them.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import GRUCell, unroll
    >>> states = unroll(GRUCell(2, 3), torch.randn(5, 7, 2))["state"]
    >>> bool(states.abs().max() <= 1)
    True
    """
    steps = [cell.start(len(x)) if start is None else start]
    for t in range(x.shape[1]):
        steps.append(cell(x[:, t], steps[-1]))
    if x.shape[1] == 0:
        return {name: x.new_zeros(len(x), 0, cell.hidden) for name in cell.CARRIED}
    return {name: torch.stack([s[name] for s in steps[1:]], 1) for name in steps[1]}


def backpropagate_through_time(cell: ElmanCell, x: Tensor, slopes: Tensor) -> Values:
    """Gradients of a loss R of the states of an Elman cell, by backward recursion.

    From the last step to the first, δᵗ = (∂R/∂hᵗ + Wᵀδᵗ⁺¹) ∗ σ̇ᵗ; then
    ∂R/∂W = Σₜ δᵗ hᵗ⁻¹ᵀ, ∂R/∂U = Σₜ δᵗ xᵗᵀ, ∂R/∂b = Σₜ δᵗ and ∂R/∂xᵗ = Uᵀδᵗ.

    Parameters
    ----------
    cell : ElmanCell
        The recurrence, from a state of zeros.
    x : Tensor of shape (batch, time, n_inputs)
        Sequences.
    slopes : Tensor of shape (batch, time, hidden)
        ∂R/∂hᵗ with the other states held fixed: what R sees of each state itself.

    Returns
    -------
    dict of Tensor
        "W", "U" and "b", summed over the batch; "x" and "states", step by step.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import ElmanCell, unroll
    >>> from certus.neural_network.modules import backpropagate_through_time
    >>> cell, x = ElmanCell(2, 3), torch.randn(5, 7, 2)
    >>> loss = unroll(cell, x)["state"].sum()
    >>> loss.backward()
    >>> found = backpropagate_through_time(cell, x, torch.ones(5, 7, 3))
    >>> torch.allclose(found["W"], cell.W.grad, atol=1e-4)
    True
    """
    _, slope = ACTIVATIONS[cell.config["activation"]]
    with torch.no_grad():
        h = unroll(cell, x)["state"]  # (batch, time, hidden)
        before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], dim=1)
        arriving = torch.zeros_like(h)  # ∂R/∂hᵗ along all ways
        later = h.new_zeros(len(h), cell.hidden)
        delta = torch.zeros_like(h)
        for t in reversed(range(h.shape[1])):
            arriving[:, t] = slopes[:, t] + later
            delta[:, t] = arriving[:, t] * slope(h[:, t])
            later = delta[:, t] @ cell.W
        return {
            "W": torch.einsum("bti,btj->ij", delta, before),
            "U": torch.einsum("bti,btj->ij", delta, x),
            "b": delta.sum(dim=(0, 1)),
            "x": delta @ cell.U,
            "states": arriving,
        }
