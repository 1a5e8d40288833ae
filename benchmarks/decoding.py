"""Generation beside Hugging Face's: ``python -m benchmarks.decoding``.

Both write 128 tokens behind one, from random weights of the same shape, with a cache,
on one thread. Times are CPU seconds, the best of several runs in turn. Written to
``results/decoding.md``; what stands there under the next heading is kept.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import describe_machine
from benchmarks.run import machine
from certus.language.decoding.samplers import CompiledDecoder, check_rule, sample
from certus.neural_network.modules import Transformer

RESULTS = Path(__file__).parent / "results" / "decoding.md"
PACKAGES = ("certus", "torch", "transformers", "numpy", "numba")
TOKENS, N_TOKENS, RUNS = 128, 257, 10


def ours(layers: int, width: int, batch: int) -> Callable[[], Any]:
    """Our compiled loop; -1 is no token, so that it never stops early."""
    words: dict[str, Any] = {"n_layers": layers, "width": width, "heads": 4}
    network = Transformer(N_TOKENS, context=256, activation="gelu_tanh", **words)
    weights = {name: p.numpy() for name, p in network.state_dict().items()}
    decoder = CompiledDecoder(network.config, weights, N_TOKENS - 1)
    decoder.end = -1
    rule, prompts = check_rule(1.0, None, 1.0, N_TOKENS), [[256]] * batch
    ids: Any = prompts

    def run() -> None:
        drawn = sample(decoder, ids, TOKENS, rule, 0)
        assert all(len(one.uniforms) == TOKENS for one in drawn)

    return run


def hugging_face(layers: int, width: int, batch: int) -> Callable[[], Any]:
    """GPT2LMHeadModel.generate with its cache."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=N_TOKENS,
        n_positions=256,
        n_embd=width,
        n_layer=layers,
        n_head=4,
        bos_token_id=256,
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config).eval()
    ids = torch.full((batch, 1), 256)
    words: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "do_sample": True}
    words |= {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "pad_token_id": 0}

    def run() -> None:
        with torch.no_grad():
            assert model.generate(ids, **words).shape == (batch, TOKENS + 1)

    return run


def cpu_seconds(run: Callable[[], Any]) -> float:
    """CPU time of one run."""
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    """Time both and write the table."""
    torch.set_num_threads(1)
    lines = [
        "# Generation",
        "",
        describe_machine(machine(PACKAGES)),
        "",
        "Tokens per CPU second, 128 tokens behind one, 257 tokens, one thread; best of "
        f"{RUNS} runs in turn. Load of the machine when this began: "
        f"{os.getloadavg()[0]:.0f} processes.",
        "",
        "| layers × width | batch | Hugging Face | certus | ratio |",
        "|---|---|---|---|---|",
    ]
    for layers, width in ((4, 128), (6, 256)):
        for batch in (1, 16):
            both = [make(layers, width, batch) for make in (hugging_face, ours)]
            for run in both:
                run()
            times = [[cpu_seconds(run) for run in both] for _ in range(RUNS)]
            theirs, own = (batch * TOKENS / min(column) for column in zip(*times))
            row = f"| {layers} × {width} | {batch} | {theirs:,.0f} | {own:,.0f} "
            lines.append(f"{row}| {own / theirs:.1f} |")
            print(lines[-1], flush=True)
    before = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    _, mark, notes = before.partition("\n## ")
    RESULTS.write_text("\n".join(lines) + "\n" + mark + notes, encoding="utf-8")


if __name__ == "__main__":
    main()
