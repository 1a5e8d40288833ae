"""Steps of training beside a torch loop by hand and Hugging Face's GPT-2.

    python -m benchmarks.training [THREADS ...]

A step is a batch from the same stream of tokens, forward, backward, the gradient's norm
cut to 1, AdamW (fused in all), and the schedule of the rate. All three are GPT-2 of one
size: learnt positions, GELU, tied embeddings, no dropout. Ours runs through the loop
that ``LanguageModel.fit`` runs. What its own defaults cost (rotary positions, normed
queries and keys, ReLU²; Muon in place of AdamW) stands on lines of its own. All take
turns, ``STEPS`` steps each; each of our turns also copies and checks the weights, which
fit does once in a hundred steps. Written to ``results/training.md``; what stands there
under the next heading is kept.
"""

import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.report import describe_machine
from benchmarks.run import machine
from certus.language import LanguageModel
from certus.language.training import TokenStream, language_step
from certus.language.windows import drawn_places
from certus.neural_network.modules import Transformer
from certus.neural_network.run import Rules, TrainingRun
from certus.neural_network.tasks import RunClock, make_plan
from certus.neural_network.train import train

RESULTS = Path(__file__).parent / "results" / "training.md"
PACKAGES = ("certus", "torch", "transformers", "numpy")
#: layers, width, context, batch; and the least ratios to the loop and to Hugging Face.
SIZES = {(4, 128, 128, 8): (1.0, 1.05), (6, 256, 256, 4): (1.0, 1.2)}
HEADS, N_TOKENS, RATE = 4, 257, 1e-3
#: Of a turn, of a comparison at least, and turns of it at least.
STEPS, SECONDS, ROUNDS = 20, 20.0, 5
Stretch = Callable[[], Any]


def tokens(n: int = 200_000) -> Any:
    return np.random.default_rng(0).integers(0, N_TOKENS, n)


def ours(size: tuple[int, ...], optimizer: str = "adam", plain: bool = True) -> Stretch:
    """certus's loop; ``plain`` is GPT-2's network, else the defaults of fit."""
    layers, width, context, batch = size
    words: dict[str, Any] = {"position": "learned", "activation": "gelu_tanh"}
    network = Transformer(
        N_TOKENS,
        n_layers=layers,
        width=width,
        heads=HEADS,
        context=context,
        **(words if plain else {"qk_norm": True}),
    )
    model = LanguageModel(optimizer=optimizer, learning_rate=RATE, weight_decay=0.01)
    step: Any = language_step(model, network, batch * context)
    stream = TokenStream(tokens(), context, "cpu")
    step.fetch = stream.fetch
    rng = np.random.default_rng(0)
    run = TrainingRun(step, rng, torch.random.get_rng_state())
    clock = RunClock(10**6, None)
    run.schedules = [make_plan(step.optimizers["module"], clock, 0.01)]

    def batches(rng: np.random.Generator) -> Any:
        drawn = drawn_places(rng, stream.n, stream.length, STEPS, batch)
        return map(torch.from_numpy, drawn)

    return lambda: train(run, batches, Rules(max_epochs=run.epoch + 1))


class Layer(nn.Module):
    """A layer of GPT-2, as it is written by hand."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        parts = self.qkv(self.ln1(x)).split(C, dim=2)
        q, k, v = (p.view(B, T, HEADS, C // HEADS).transpose(1, 2) for p in parts)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(z.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class HandWritten(nn.Module):
    """GPT-2 in as few lines as it takes."""

    def __init__(self, layers: int, width: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(N_TOKENS, width)
        self.places = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)


def loop(network: nn.Module, loss_of: Any, size: tuple[int, ...]) -> Stretch:
    """A training loop as one writes it by hand."""
    _, _, context, batch = size
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 - t / 1e6)
    data, rng = torch.from_numpy(tokens()), np.random.default_rng(0)

    def run() -> None:
        total = 0.0
        for _ in range(STEPS):
            begins = rng.integers(0, len(data) - context - 1, batch)
            rows = torch.stack([data[b : b + context + 1] for b in begins])
            loss = loss_of(network, rows)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.detach()
        assert math.isfinite(float(total))

    return run


def by_hand(size: tuple[int, ...]) -> Stretch:
    def loss_of(network: nn.Module, rows: Tensor) -> Tensor:
        z = network(rows[:, :-1])
        return F.cross_entropy(z.flatten(0, 1), rows[:, 1:].flatten())

    return loop(HandWritten(*size[:3]), loss_of, size)


def hugging_face(size: tuple[int, ...]) -> Stretch:
    """GPT2LMHeadModel; it is given the labels that the others have.

    With ``labels`` alone it would shift them itself and judge one position less.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, width, context, _ = size
    none = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = GPT2Config(
        vocab_size=N_TOKENS,
        n_positions=context,
        n_embd=width,
        n_layer=layers,
        n_head=HEADS,
        bos_token_id=256,
        eos_token_id=256,
        **none,
    )
    network = GPT2LMHeadModel(config).train()

    def loss_of(network: Any, rows: Tensor) -> Tensor:
        wanted = rows[:, 1:].contiguous()
        return network(
            input_ids=rows[:, :-1],
            labels=wanted,
            shift_labels=wanted,
            use_cache=False,
        ).loss

    return loop(network, loss_of, size)


CONTENDERS: dict[str, Callable[[tuple[int, ...]], Stretch]] = {
    "torch by hand": by_hand,
    "Hugging Face": hugging_face,
    "certus": ours,
    "certus, its own network": lambda size: ours(size, plain=False),
    "certus, its own network, Muon": lambda size: ours(size, "muon", False),
}


def measure(size: tuple[int, ...], threads: int) -> dict[str, Any]:
    """Milliseconds of a step, (rounds, 2): by the clock and of CPU time."""
    torch.set_num_threads(threads)
    runs = {name: make(size) for name, make in CONTENDERS.items()}
    found: dict[str, Any] = {name: [] for name in runs}
    for run in runs.values():
        run()
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(found["certus"]) < ROUNDS:
        for name, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            found[name].append((1e3 * wall / STEPS, 1e3 * cpu / STEPS))
    return {name: np.array(times) for name, times in found.items()}


def compared(times: Any, ours: Any, goal: float | None) -> str:
    """Ratios of turns to ours: the median, the middle half, and whether it is enough.

    Examples
    --------
    >>> compared(np.array([1.9, 2.0, 2.2]), np.array([2.0, 2.0, 2.0]), 1.001)
    '1.00 (0.97–1.05; at least 1.001: missed)'
    """
    low, ratio, high = np.quantile(times / ours, (0.25, 0.5, 0.75))
    told = f"{ratio:.2f} ({low:.2f}–{high:.2f}"
    if goal is None:
        return told + ")"
    return f"{told}; at least {goal:g}: {'met' if ratio >= goal else 'missed'})"


def rows(size: tuple[int, ...], threads: int) -> list[str]:
    """Lines of the table; one thread is judged by CPU time, two by the clock."""
    layers, width, context, batch = size
    found, lines = measure(size, threads), []
    by = 1 if threads == 1 else 0
    asked = dict(zip(found, SIZES[size])) if threads == 1 else {}
    for name, times in found.items():
        wall, cpu = np.median(times, axis=0)
        told = compared(times[:, by], found["certus"][:, by], asked.get(name))
        lines.append(
            f"| {layers} × {width}, {context}, {batch} | {threads} | {name} "
            f"| {wall:.1f} | {cpu:.1f} | {told} |"
        )
        print(lines[-1], flush=True)
    return lines


def main(threads: list[int]) -> None:
    """Time all and write the table."""
    lines = ["# Training", "", describe_machine(machine(PACKAGES)), ""]
    busy = os.getloadavg()[0]
    lines += [
        "Milliseconds of a step, the median of several turns. Each turn's time is also "
        "divided by that of ours in the same turn, CPU time on one thread and the "
        "clock on more: the median of these ratios, and between which values the "
        "middle half of them lies. "
        f"Load of the machine when this began: {busy:.0f} processes.",
        "",
        "| layers × width, context, batch | threads | who | ms | CPU ms | ÷ certus |",
        "|---|---|---|---|---|---|",
    ]
    for size in SIZES:
        for count in threads:
            lines += rows(size, count)
    before = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    _, mark, notes = before.partition("\n## ")
    text = "\n".join(lines) + "\n" + mark + notes
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1:]] or [1, 2])
