"""Two processes train one language model: gradients are averaged over the batch."""

import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from certus.language import LanguageModel  # noqa: E402
from certus.language.training import TokenStream, next_token_loss  # noqa: E402
from certus.neural_network.modules import Transformer  # noqa: E402

TEXT = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 20
SETTINGS = {
    "n_layers": 1,
    "width": 16,
    "heads": 2,
    "context": 16,
    "batch_size": 5,
    "max_iter": 12,
    "optimizer": "adam",
    "random_state": 0,
}
CODE = """
import os, sys, warnings
import numpy as np, torch
torch.set_num_threads(1)
warnings.simplefilter("ignore")
from test_language_together import SETTINGS, TEXT
from certus.language import LanguageModel
model = LanguageModel(**SETTINGS).fit(TEXT)
timed = LanguageModel(**{**SETTINGS, "max_iter": None}, max_time=0.5).fit(TEXT)
np.savez(sys.argv[1] + "/rank-" + os.environ["RANK"], steps=timed.n_iter_,
         **model.weights_)
"""


@pytest.mark.catalog("LM-24")
@pytest.mark.skipif(
    not torch.distributed.is_gloo_available(), reason="torch was built without gloo"
)
@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
def test_two_processes_train_the_model_that_one_would(tmp_path):
    script = tmp_path / "fit.py"
    script.write_text(CODE, encoding="utf-8")
    here = os.path.dirname(__file__)
    paths = [here, os.environ.get("PYTHONPATH", "")]
    subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--master-port", "0", "--standalone", str(script), str(tmp_path)),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        check=True,
        capture_output=True,
        timeout=300,
    )
    first, second = (np.load(tmp_path / f"rank-{i}.npz") for i in (0, 1))
    alone = LanguageModel(**SETTINGS).fit(TEXT).weights_
    assert first["steps"] == second["steps"] > 0
    for name, array in alone.items():
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_allclose(first[name], array, atol=2e-4)


@pytest.mark.catalog("LM-24")
def test_the_gradient_of_a_batch_is_the_weighted_mean_of_those_of_its_parts():
    net = Transformer(257, n_layers=2, width=16, heads=2, context=16).double()
    ids = np.frombuffer(b"\0" + TEXT.encode(), np.uint8)
    stream = TokenStream(ids, 16, "cpu")
    begins = torch.tensor([0, 40, 100, 333, 517])

    def gradient(part):
        loss = next_token_loss(net, stream.fetch(part))["loss"]
        parts = torch.autograd.grad(loss, list(net.parameters()))
        return nn.utils.parameters_to_vector(parts)

    shares = begins[0::2], begins[1::2]
    mean = sum(len(part) * gradient(part) for part in shares) / len(begins)
    torch.testing.assert_close(mean, gradient(begins), atol=1e-14, rtol=1e-10)
