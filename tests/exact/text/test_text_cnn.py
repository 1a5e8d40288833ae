"""Convolutions over text: the network's formula, and order that a bag does not see."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import certus  # noqa: E402
from certus.neural_network.modules import TextCNN  # noqa: E402
from certus.text import TextConvClassifier, Vocabulary  # noqa: E402
from certus.text.corpus import positions  # noqa: E402

GOOD, BAD = ("good", "great", "fine"), ("bad", "poor", "dull")
PLACES = ("film", "book", "play", "song")


def reviews():
    """Each pair of texts is one bag of words with two meanings."""
    texts, labels = [], []
    for good, bad, place in itertools.product(GOOD, BAD, PLACES):
        texts += [f"the {place} is {good}, not {bad}"]
        texts += [f"the {place} is not {good}, {bad}"]
        texts += [f"{bad} {place}, not {good} at all"]
        texts += [f"{good}, at all not {bad} {place}"]
        labels += ["+", "-", "-", "+"]
    return texts, np.array(labels)


def quick(**options):
    return TextConvClassifier(
        **{
            "embedding": 16,
            "n_filters": 16,
            "schedule": "cosine",
            "learning_rate": 1e-2,
            "max_iter": 15,
            "batch_size": 32,
            "random_state": 0,
            **options,
        }
    )


@pytest.fixture(scope="module")
def fitted():
    texts, labels = reviews()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(texts))
    train, test = order[:108], order[108:]
    model = quick().fit([texts[i] for i in train], labels[train])
    return model, [texts[i] for i in test], labels[test]


@pytest.mark.catalog("TXT-11")
def test_sentiment_in_the_order_of_words_is_learned(fitted):
    model, texts, labels = fitted
    assert model.score(texts, labels) > 0.97
    p = model.predict_proba(texts)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    assert (model.classes_[p.argmax(axis=1)] == model.predict(texts)).all()


@pytest.mark.catalog("TXT-11")
def test_a_bag_of_words_cannot_distinguish_the_classes():
    pairs = ["the film is good, not bad", "the film is bad, not good"]
    counts = CountVectorizer().fit_transform(pairs)
    assert (counts[0] != counts[1]).nnz == 0
    bags = make_pipeline(CountVectorizer(), LogisticRegression(C=100))
    assert bags.fit(pairs * 8, ["+", "-"] * 8).score(pairs, ["+", "-"]) == 0.5
    # Widths of one word are a bag too: they see no order either.
    alone = quick(widths=(1,), dropout=0.0).fit(pairs * 8, ["+", "-"] * 8)
    np.testing.assert_allclose(*alone.predict_proba(pairs), rtol=1e-5)
    order = quick(widths=(2,), dropout=0.0).fit(pairs * 8, ["+", "-"] * 8)
    assert order.score(pairs, ["+", "-"]) == 1.0


@pytest.mark.catalog("TXT-11")
def test_a_filter_finds_its_run_of_words_anywhere():
    net = TextCNN(4, 1, embedding=3, widths=(2,), channels=1).double().eval()
    with torch.no_grad():
        net.embedding.weight.copy_(torch.eye(4)[:, 1:].double())  # word i is axis i
        net.filters[0].weight.zero_()
        net.filters[0].weight[0, 0, 0] = 1.0  # word 1 ...
        net.filters[0].weight[0, 1, 1] = 1.0  # ... and then word 2
        net.filters[0].bias.fill_(-1.0)
    texts = torch.tensor([[3, 3, 1, 2], [2, 1, 3, 3], [1, 3, 2, 1], [1, 2, 3, 3]])
    found = net.maxima(texts, torch.full((4,), 4))
    assert found[:, 0].tolist() == [1.0, 0.0, 0.0, 1.0]
    # The same text cut before the second word of the run.
    assert net.maxima(texts[:1], torch.tensor([3])).tolist() == [[0.0]]


def test_maxima_are_those_of_windows_written_out():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = TextCNN(9, 2, embedding=4, widths=(1, 3), channels=5).double().eval()
    text = torch.tensor([[3, 8, 1, 1, 5, 2]])
    with torch.no_grad():
        x = net.embedding.weight[text[0]]  # (time, embedding)
        wanted = []
        for layer, width in zip(net.filters, (1, 3)):
            windows = [x[t : t + width].T for t in range(len(x) - width + 1)]
            each = [(layer.weight * w).sum(dim=(1, 2)) + layer.bias for w in windows]
            wanted.append(torch.stack(each).clamp(min=0).amax(dim=0))
        found = net.maxima(text, torch.tensor([6]))[0]
    torch.testing.assert_close(found, torch.cat(wanted))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 6), max_size=7), min_size=1, max_size=5),
    st.integers(0, 4),
)
def test_padding_is_not_read(texts, more):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = TextCNN(7, 2, embedding=3, widths=(1, 2, 4), channels=4).double().eval()
    lengths = torch.tensor([len(t) for t in texts])
    time = max(map(len, texts)) + more
    padded, zeros = (  # what fills the rest must not matter, whatever it is
        torch.tensor([t + [fill] * (time - len(t)) for t in texts], dtype=torch.int64)
        for fill in (5, 0)
    )
    with torch.no_grad():
        together = net(zeros, lengths)
        torch.testing.assert_close(net(padded, lengths), together)
        for i, text in enumerate(texts):
            alone = net(torch.tensor([text], dtype=torch.int64), lengths[i : i + 1])
            torch.testing.assert_close(alone[0], together[i])


def test_unknown_words_keep_their_places():
    words = Vocabulary(["rum", "tea"])
    found = positions(["Tea, not rum", ["x"], ""], words)
    assert [p.tolist() for p in found] == [[1, -1, 0], [-1], []]


def test_token_lists_generators_and_rare_words(fitted):
    texts, labels = reviews()
    a = quick(max_iter=2).fit(texts, labels)
    b = quick(max_iter=2).fit((t for t in texts), labels)
    c = quick(max_iter=2).fit([certus.text.tokenize(t) for t in texts], labels)
    assert a.loss_ == b.loss_ == c.loss_
    rare = quick(max_iter=2, min_count=60).fit(texts, labels)
    assert set(rare.vocabulary_) == {"not", "the", "is", "at", "all"}
    model = fitted[0]
    strange = model.predict_proba(["words never seen", "", "nor these here"])
    assert np.isfinite(strange).all()
    np.testing.assert_allclose(strange[0], strange[2], rtol=1e-6)


def test_certificate_file_and_copies(fitted, tmp_path):
    model, texts, labels = fitted
    assert certus.certify(model, texts, labels)["gradient_ratio"].value < 1e-4
    back = certus.load(model.save(tmp_path / "m.certus"))
    np.testing.assert_array_equal(back.predict_proba(texts), model.predict_proba(texts))
    assert back.vocabulary_ == model.vocabulary_
    assert clone(model).get_params() == model.get_params()
    scores = cross_val_score(quick(max_iter=1), texts, labels, cv=2)
    assert len(scores) == 2


@pytest.mark.parametrize(
    ("texts", "labels", "match"),
    [
        ("one text", ["a"], "single string"),
        (["a", "b"], ["x", "x"], "only one class"),
        (["", ""], ["x", "y"], "have no words"),
        (["a", 3], ["x", "y"], "Document 1 is 3"),
        ([["a"], [3]], ["x", "y"], "Document 1 holds a token that is not a string"),
        (["a", "b", "c"], ["x", "y"], "inconsistent numbers"),
    ],
)
def test_input_without_labelled_texts_is_reported(texts, labels, match):
    with pytest.raises((ValueError, TypeError), match=match):
        quick(max_iter=1).fit(texts, labels)


@pytest.mark.parametrize(
    "options", [{"widths": ()}, {"widths": 3}, {"widths": (0,)}, {"n_filters": 0}]
)
def test_impossible_sizes_are_refused(options):
    with pytest.raises((ValueError, TypeError), match=next(iter(options))):
        quick(**options).fit(["a b", "b a"], [0, 1])


def test_texts_need_no_torch_until_a_network_is_asked_for():
    code = """
import sys
import certus.text
certus.text.BagOfWords
print("torch" in sys.modules)
sys.modules["torch"] = None
try:
    certus.text.TextConvClassifier
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("False"), done.stderr
    assert 'pip install "certus[deep]"' in done.stdout, done.stderr
