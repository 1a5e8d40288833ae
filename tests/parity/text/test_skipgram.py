"""Loss and gradient of negative sampling against automatic differentiation."""

import numpy as np
import pytest

import certus
from certus.text import DocumentVectors, FastTextVectors, SkipGram

torch = pytest.importorskip("torch")

OPTIONS = {
    "n_components": 7,
    "subsample": None,
    "min_count": 1,
    "negatives": 3,
    "max_iter": 2,
    "random_state": 0,
}
MODELS = [
    SkipGram(**OPTIONS),
    FastTextVectors(**OPTIONS),
    DocumentVectors(**OPTIONS),
]


@pytest.mark.catalog("TXT-07")
@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_loss_and_gradient_are_those_of_torch(model):
    rng = np.random.default_rng(0)
    texts = [[f"w{i}" for i in row] for row in rng.integers(0, 30, (40, 9))]
    model.fit(texts)
    found = certus.certify(model, texts)
    arrays = found.evidence.witness._asdict()
    place = {word: i for i, word in enumerate(model.vocabulary_)}
    ids = np.array([place[word] for text in texts for word in text])
    table, inputs = model.context_vectors_, arrays["inputs"]
    if isinstance(model, DocumentVectors):
        start = model.document_vectors_
    else:
        start, inputs = model.vectors_, ids[inputs]
    Z, U = (
        torch.tensor(t, dtype=torch.float64, requires_grad=True) for t in (start, table)
    )
    H, true = Z[torch.tensor(inputs)], U[torch.tensor(ids[arrays["targets"]])]
    drawn = U[torch.tensor(arrays["noise"].astype(np.int64))]
    log_sigmoid = torch.nn.functional.logsigmoid
    real = log_sigmoid((H * true).sum(1))
    noise = log_sigmoid(-(drawn @ H[:, :, None])[..., 0]).sum(1)
    loss = -(real + noise).mean()
    loss.backward()
    norm = torch.sqrt((Z.grad**2).sum() + (U.grad**2).sum())
    assert found["sample_loss"].value == pytest.approx(loss.item(), rel=1e-12)
    assert found["gradient_norm"].value == pytest.approx(norm.item(), rel=1e-10)
    lead = (H * true).sum(1)[:, None] - (drawn @ H[:, :, None])[..., 0]
    lead[lead.abs() < 1e-12] = 0  # the true word was drawn
    share = (lead > 0).double().mean() + (lead == 0).double().mean() / 2
    assert found["pairs_told_apart"].value == pytest.approx(share.item(), abs=1e-12)
