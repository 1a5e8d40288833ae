"""Steps of DPO, PPO and GRPO beside trl's, on the same network and sizes, one thread.

trl runs in the same process, in an environment that has it and what certus needs:
``pip install "torch==2.13.0" "trl==1.12.0" requests .``, the last release of trl that
has PPO. A GPT-2 of 4 layers of width 128 with 257 tokens. DPO: batches of 16 pairs,
prompts of 32 tokens, answers of 32, the log-probabilities of the reference found in
advance by both. PPO and GRPO: 32 answers of at most 32 tokens in an iteration, drawn,
judged and stepped on once; the reward of GRPO is a function, that of PPO a reward model
of the size of the policy. PPO of trl needs a critic: one layer of width 16, whose cost
hardly counts. The median of the CPU seconds of a step; what comes before the third step
is not counted.
"""

import os
import tempfile
import time
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.report import describe_machine
from benchmarks.run import machine
from certus.language import DPO, GRPO, PPO, LanguageModel, RewardModel

N_TOKENS, STEPS = 257, 8
LETTERS = "abcdefghijklmnop"
NAMES = ("DPO", "PPO", "GRPO")
PACKAGES = ("certus", "trl", "transformers", "torch", "numpy", "numba")


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
        n_layers=4,
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

    network, prompts = base(), pairs(64)[0]
    judge = RewardModel(network, random_state=0).fit(*pairs(32))
    rolled: dict[str, Any] = {"batch_size": 32, "passes": 1, "max_tokens": 32}
    rolled |= {"max_iter": STEPS, "n_iter_no_change": 99, "random_state": 0}
    fits = {
        "DPO": lambda: DPO(network, max_iter=STEPS, early_stopping=False).fit(
            *pairs(256)
        ),
        "PPO": lambda: PPO(network, judge, group=8, **rolled).fit(prompts),
        "GRPO": lambda: GRPO(network, share_of_b, group=8, **rolled).fit(prompts),
    }
    GradientStep.__call__ = timed  # type: ignore[method-assign]
    try:
        for name in NAMES:
            clock.marks = []
            fits[name]()
            found[name] = clock.step()
    finally:
        GradientStep.__call__ = plain  # type: ignore[method-assign]
    return found


class Theirs(NamedTuple):
    """What all of trl's runs share."""

    tokenizer: Any
    config: Any
    clock: StepClock
    callback: Any

    def common(self) -> dict[str, Any]:
        """Settings of every trainer."""
        return {
            "output_dir": tempfile.mkdtemp(),
            "report_to": [],
            "use_cpu": True,
            "save_strategy": "no",
            "bf16": False,
            "gradient_checkpointing": False,
            "disable_tqdm": True,
            "logging_steps": 1000,
        }


def their_setting() -> Theirs:
    """A tokeniser of single characters, GPT-2's sizes and a clock."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, PreTrainedTokenizerFast, TrainerCallback

    vocabulary = {chr(i): i for i in range(255)} | {"<pad>": 255, "<end>": 256}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<end>", pad_token="<pad>", unk_token="<pad>"
    )
    tokenizer.padding_side = "left"
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
    clock = StepClock()

    class Ticks(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            clock.tick()

    return Theirs(tokenizer, config, clock, Ticks())


def their_dpo(use: Theirs) -> None:
    """trl's DPO."""
    from datasets import Dataset
    from transformers import GPT2LMHeadModel
    from trl import DPOConfig, DPOTrainer

    prompts, chosen, rejected = pairs(256)
    table = {"prompt": prompts, "chosen": chosen, "rejected": rejected}
    DPOTrainer(
        model=GPT2LMHeadModel(use.config),
        args=DPOConfig(
            **use.common(),
            max_steps=STEPS,
            per_device_train_batch_size=16,
            precompute_ref_log_probs=True,
        ),
        train_dataset=Dataset.from_dict(table),
        processing_class=use.tokenizer,
        callbacks=[use.callback],
    ).train()


def their_ppo(use: Theirs) -> None:
    """trl's PPO, with a reward model of the policy's size and a small critic."""
    from datasets import Dataset
    from transformers import GPT2ForSequenceClassification, GPT2LMHeadModel
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    judge, small = use.config.__class__(**use.config.to_dict()), use.config.to_dict()
    judge.num_labels = 1
    small |= {"n_layer": 1, "n_embd": 16, "n_head": 2}
    critic = use.config.__class__(**small)
    critic.num_labels = 1
    rows = [{"input_ids": use.tokenizer(x)["input_ids"]} for x in pairs(64)[0]]
    PPOTrainer(
        args=PPOConfig(
            **use.common(),
            per_device_train_batch_size=32,
            gradient_accumulation_steps=1,
            num_mini_batches=1,
            num_ppo_epochs=1,
            total_episodes=32 * STEPS,
            local_rollout_forward_batch_size=32,
            response_length=32,
            temperature=1.0,
            stop_token="eos",
            kl_coef=0.1,
            num_sample_generations=0,
        ),
        processing_class=use.tokenizer,
        model=GPT2LMHeadModel(use.config),
        ref_model=GPT2LMHeadModel(use.config),
        reward_model=GPT2ForSequenceClassification(judge),
        value_model=GPT2ForSequenceClassification(critic),
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(rows[:8]),
        callbacks=[use.callback],
    ).train()


def their_grpo(use: Theirs) -> None:
    """trl's GRPO."""
    from datasets import Dataset
    from transformers import GPT2LMHeadModel
    from trl import GRPOConfig, GRPOTrainer

    def reward(prompts: Any, completions: Any, **more: Any) -> list[float]:
        return [share_of_b(x, y) for x, y in zip(prompts, completions)]

    with TemporaryDirectory() as folder:  # the reference is read from files
        GPT2LMHeadModel(use.config).save_pretrained(folder)
        use.tokenizer.save_pretrained(folder)
        GRPOTrainer(
            model=folder,
            reward_funcs=reward,
            args=GRPOConfig(
                **use.common(),
                max_steps=STEPS,
                per_device_train_batch_size=32,
                num_generations=8,
                max_completion_length=32,
                beta=0.1,
            ),
            train_dataset=Dataset.from_dict({"prompt": pairs(64)[0]}),
            processing_class=use.tokenizer,
            callbacks=[use.callback],
        ).train()


def theirs() -> dict[str, float]:
    """Seconds of a step of trl's."""
    use, found = their_setting(), {}
    for name, run in zip(NAMES, (their_dpo, their_ppo, their_grpo)):
        use.clock.marks = []
        run(use)
        found[name] = use.clock.step()
    return found


def speed() -> list[str]:
    """Time both, one after the other, and return the lines of a table."""
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    own, other = ours(), theirs()
    lines = [*(__doc__ or "").splitlines()[2:13], ""]
    where = describe_machine(machine(PACKAGES)).strip()
    where += f" Load of the machine when this began: {load:.1f} processes."
    lines += [where, ""]
    lines += ["| step | trl, ms | certus, ms | ratio |", "|---|---|---|---|"]
    for name, mine in own.items():
        ratio = other[name] / mine
        row = f"| {name} | {1e3 * other[name]:.0f} | {1e3 * mine:.0f} | {ratio:.2f} |"
        lines.append(row)
        print(row, flush=True)
    return lines
