"""Steps of DPO and GRPO beside trl's, on the same network and sizes, one thread.

trl runs in the same process if it is installed: a GPT-2 of 4 layers of width 128 with
257 tokens. DPO: batches of 16 pairs, prompts of 32 tokens, answers of 32, the
reference's log-probabilities found in advance by both. GRPO: 32 answers of 32 tokens
for 4 prompts in an iteration, drawn, judged and stepped on once. CPU seconds of a whole
run divided by its steps; what comes before the first step is not counted.
"""

import tempfile
import time
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import certus
from certus.language import DPO, GRPO, LanguageModel

N_TOKENS, STEPS = 257, 8
LETTERS = "abcdefghijklmnop"


def words(rng: np.random.Generator, n: int) -> str:
    """A text of n letters, each of them one token."""
    return "".join(rng.choice(list(LETTERS), n))


def pairs(n: int) -> tuple[list[str], list[str], list[str]]:
    """Prompts, chosen and rejected answers."""
    rng = np.random.default_rng(0)
    made = [(words(rng, 32), words(rng, 31), words(rng, 31)) for _ in range(n)]
    return tuple(map(list, zip(*made)))  # type: ignore[return-value]


def share_of_b(prompt: str, answer: str) -> float:
    """A cheap reward."""
    return answer.count("b") / max(1, len(answer))


class StepClock:
    """The CPU time at the end of each step."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def tick(self) -> None:
        """Note the time."""
        self.marks.append(time.process_time())

    def step(self) -> float:
        """The median time of a step, the first ones left out."""
        return float(np.median(np.diff(self.marks)[2:]))


def base() -> LanguageModel:
    """Our network, hardly trained: what it says does not matter here."""
    model = LanguageModel(
        layers=4,
        width=128,
        heads=4,
        context=96,
        position="learned",
        activation="gelu_tanh",
        qk_norm=False,
        max_iter=2,
        random_state=0,
    )
    return model.fit(words(np.random.default_rng(1), 4000))


def ours() -> dict[str, float]:
    """Seconds of a step of ours."""
    from certus.neural_network.objective import GradientStep

    clock, found = StepClock(), {}
    plain = GradientStep.__call__

    def timed(self: Any, rows: Any) -> Any:
        losses = plain(self, rows)
        clock.tick()
        return losses

    GradientStep.__call__ = timed  # type: ignore[method-assign]
    try:
        network = base()
        for name in ("DPO", "GRPO"):
            clock.marks = []
            if name == "DPO":
                DPO(network, max_iter=STEPS, early_stopping=False).fit(*pairs(256))
            else:
                model = GRPO(network, share_of_b, group=8, batch_size=32, passes=1)
                model.set_params(max_tokens=32, max_iter=STEPS, n_iter_no_change=99)
                model.fit(pairs(64)[0])
            found[name] = clock.step()
    finally:
        GradientStep.__call__ = plain  # type: ignore[method-assign]
    return found


def theirs(names: tuple[str, ...] = ("DPO", "GRPO")) -> dict[str, float]:
    """Seconds of a step of trl's."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        PreTrainedTokenizerFast,
        TrainerCallback,
    )
    from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer

    vocabulary = {chr(i): i for i in range(255)} | {"<pad>": 255, "<end>": 256}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<end>", pad_token="<pad>", unk_token="<pad>"
    )
    config = GPT2Config(
        vocab_size=N_TOKENS,
        n_positions=96,
        n_embd=128,
        n_layer=4,
        n_head=4,
        eos_token_id=256,
        bos_token_id=256,
        pad_token_id=255,
    )
    clock, found = StepClock(), {}

    class Ticks(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            clock.tick()

    common: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(),
        "max_steps": STEPS,
        "report_to": [],
        "use_cpu": True,
        "save_strategy": "no",
        "bf16": False,
        "disable_tqdm": True,
        "logging_steps": 1000,
    }
    prompts, chosen, rejected = pairs(256)
    table = {"prompt": prompts, "chosen": chosen, "rejected": rejected}
    if "DPO" in names:
        DPOTrainer(
            model=GPT2LMHeadModel(config),
            args=DPOConfig(
                **common, per_device_train_batch_size=16, precompute_ref_log_probs=True
            ),
            train_dataset=Dataset.from_dict(table),
            processing_class=tokenizer,
            callbacks=[Ticks()],
        ).train()
        found["DPO"], clock.marks = clock.step(), []

    def reward(prompts: Any, completions: Any, **more: Any) -> list[float]:
        return [share_of_b(x, y) for x, y in zip(prompts, completions)]

    if "GRPO" in names:
        with TemporaryDirectory() as folder:  # the reference is read from files
            GPT2LMHeadModel(config).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            GRPOTrainer(
                model=folder,
                reward_funcs=reward,
                args=GRPOConfig(
                    **common,
                    per_device_train_batch_size=32,
                    num_generations=8,
                    max_completion_length=32,
                    beta=0.1,
                ),
                train_dataset=Dataset.from_dict({"prompt": prompts[:64]}),
                processing_class=tokenizer,
                callbacks=[Ticks()],
            ).train()
        found["GRPO"] = clock.step()
    return found


def speed() -> list[str]:
    """Time both, one after the other, and return the lines of a table."""
    torch.set_num_threads(1)
    with certus.config_context(certify="never"):
        own, other = ours(), theirs()
    lines = ["## Speed", "", " ".join((__doc__ or "").splitlines()[2:7]), ""]
    lines += ["| step | trl, ms | certus, ms | ratio |", "|---|---|---|---|"]
    for name, mine in own.items():
        ratio = other[name] / mine
        row = f"| {name} | {1e3 * other[name]:.0f} | {1e3 * mine:.0f} | {ratio:.2f} |"
        lines.append(row)
        print(row, flush=True)
    return lines
