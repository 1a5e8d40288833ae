"""Masked language models: both sides of a gap, the loss of hidden places, pairs."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

import certus  # noqa: E402
from certus.language import MaskedLanguageModel  # noqa: E402
from certus.language.base import END  # noqa: E402
from certus.language.encoders.masking import (  # noqa: E402
    NONE,
    MaskedNetwork,
    MaskingTask,
    hide,
    masked_loss,
    pair_of,
)
from certus.neural_network.checkpoint import Checkpoints  # noqa: E402
from certus.neural_network.modules import (  # noqa: E402
    PUBLISHED,
    Transformer,
    count_parameters,
)
from certus.verify.language import attention  # noqa: E402
from helpers.letters import Letters, entropy_rate, markov_text  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")

P = np.array([[0.1, 0.8, 0.1], [0.2, 0.1, 0.7], [0.6, 0.3, 0.1]])
TEXTS = ["the cat sat on the mat", "the dog lay on the rug"] * 30
SMALL = {
    "n_layers": 1,
    "width": 16,
    "heads": 2,
    "context": 24,
    "batch_size": 8,
    "max_iter": 30,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def small():
    return MaskedLanguageModel(**SMALL).fit(TEXTS)


def weights(model):
    return {name: array.tobytes() for name, array in model.weights_.items()}


# -- both sides ----------------------------------------------------------------------


@pytest.mark.catalog("LM-11")
def test_filling_gaps_costs_less_than_any_left_to_right_model():
    """On a Markov chain the law of a letter is known, from one side and from both."""
    model = MaskedLanguageModel(
        tokenizer=Letters(),
        n_layers=1,
        width=32,
        heads=2,
        context=17,
        batch_size=64,
        max_iter=400,
        mask_fraction=0.1,
        max_time=None,
        random_state=0,
    ).fit(markov_text(P, 40_000))
    ids = Letters().encode(markov_text(P, 3_200, seed=1)).reshape(200, 16)
    at = 7
    found = -np.array([model.masked_log_probs(row, np.array([at]))[0] for row in ids])
    before, hidden, behind = ids[:, at - 1], ids[:, at], ids[:, at + 1]
    one_side = -np.log(P[before, hidden])
    both = P[before][:, :] * P[:, behind].T  # p(x | a, b) ∝ P[a, x] P[x, b]
    two_sides = -np.log(both[np.arange(len(ids)), hidden] / both.sum(axis=1))
    assert one_side.mean() == pytest.approx(entropy_rate(P) * math.log(2), abs=0.15)
    gain = one_side - found  # paired: the same places
    low = gain.mean() - 3 * gain.std(ddof=1) / math.sqrt(len(gain))
    assert low > 0
    # It is as good as the law of both neighbours, and cannot be much better.
    apart = found - two_sides
    half = 3 * apart.std(ddof=1) / math.sqrt(len(apart))
    assert -half < apart.mean() < 0.06 + half


@pytest.mark.catalog("LM-11", "SSL-02")
def test_the_loss_is_that_of_hidden_places_by_a_transformer_in_numpy(small):
    task = MaskingTask(small, [text.encode() for text in TEXTS[:8]], None)
    (batch,) = task.draw(np.random.default_rng(0), 1)
    module = MaskedNetwork(small.network_, False).eval()
    tokens, seen = (x.numpy() for x in batch.inputs)
    y, total, n = batch.y.numpy(), 0.0, 0
    for row, inside, target in zip(tokens, seen, y, strict=True):
        states = attention.forward(small.config_, small.weights_, row[inside])
        z = states @ small.weights_["embedding.weight"][:-1].T.astype(float)
        lp = attention.log_softmax(z)
        for t in np.flatnonzero(target != NONE):
            total, n = total - lp[t, target[t]], n + 1
    assert float(masked_loss(module, batch)["loss"].detach()) == pytest.approx(
        total / n, abs=1e-5
    )
    # Another target at a place that is not hidden does not exist; one more hidden
    # place changes the loss.
    assert n == (y != NONE).sum() < seen.sum() / 2
    other = batch.y.clone()
    other[0, 1] = int(tokens[0, 1]) if other[0, 1] == NONE else NONE
    with torch.no_grad():
        changed = masked_loss(module, batch._replace(y=other))["loss"]
        assert float(changed) != float(masked_loss(module, batch)["loss"])


def test_eight_in_ten_are_hidden_and_one_in_ten_is_replaced_or_kept():
    rng = np.random.default_rng(0)
    tokens = np.tile(np.arange(50), (400, 1))
    allowed = tokens != 0
    hidden, targets = hide(rng, tokens, allowed, 0.15, 50)
    chosen = targets != NONE
    assert not chosen[:, 0].any() and chosen.any(axis=1).all()
    assert (targets[chosen] == tokens[chosen]).all()
    assert (hidden[~chosen] == tokens[~chosen]).all()
    n = chosen.sum()
    assert n / allowed.sum() == pytest.approx(0.15, abs=0.01)
    assert (hidden[chosen] == 50).mean() == pytest.approx(0.8, abs=0.02)
    kept = (hidden[chosen] == tokens[chosen]).mean()
    assert kept == pytest.approx(0.1 + 0.1 / 50, abs=0.02)


def test_a_row_with_one_token_has_one_target():
    tokens = np.array([[9, 3, 9, 9]])
    _, targets = hide(np.random.default_rng(0), tokens, tokens != 9, 0.15, 9)
    assert targets.tolist() == [[NONE, 3, NONE, NONE]]


def test_probabilities_of_a_gap_add_up_and_depend_on_both_sides(small):
    first = small.mask_probabilities("the <|mask|>at sat")
    other = small.mask_probabilities("the <|mask|>og sat")
    assert first.shape == (1, 257)
    assert first.sum() == pytest.approx(1)
    assert np.abs(first - other).max() > 1e-7  # from left to right: exactly 0
    before = small.mask_probabilities("a <|mask|>at sat")
    assert np.abs(first - before).max() > 1e-7
    two = small.mask_probabilities("<|mask|>he <|mask|>at")
    assert two.shape == (2, 257)


def test_the_most_probable_value_is_filled_in_and_the_rest_is_kept(small):
    text = "the c<|mask|>t sat"
    best = int(small.mask_probabilities(text)[0, :256].argmax())
    assert small.fill(text) == text.replace("<|mask|>", bytes([best]).decode())
    filled = small.fill(b"th<|mask|> cat s<|mask|>t")
    assert len(filled) == 11 and filled.startswith("th")


def test_a_text_longer_than_the_context_is_seen_around_its_gap(small):
    room = small.network_.config["context"] - 1
    core = "the cat s<|mask|>t on the mat"
    # The mask stands in the middle of the window, far from both ends.
    long = "x" * 100 + core + "y" * 100
    ids = small._with_masks(long)
    at = int(np.flatnonzero(ids == 257)[0])
    window = ids[at - room // 2 : at - room // 2 + room]
    expected = np.exp(small._log_probs(window, np.array([room // 2])))
    np.testing.assert_array_equal(small.mask_probabilities(long), expected)


# -- pairs ---------------------------------------------------------------------------


def stories(n, seed):
    """Texts of four sentences about one of two things."""
    rng = np.random.default_rng(seed)
    letters = np.array([list("abcd"), list("wxyz")])
    texts = []
    for i in range(n):
        words = ["".join(rng.choice(letters[i % 2], 5)) for _ in range(4)]
        texts.append(". ".join(words) + ".")
    return texts


@pytest.mark.catalog("LM-12")
def test_pairs_are_a_coin_at_first_and_learnt_in_the_end():
    options = {**SMALL, "n_layers": 2, "width": 32, "context": 16, "batch_size": 64}
    options |= {"pairs": True, "max_time": None, "early_stopping": False}
    texts = stories(200, 0)
    fresh = stories(60, 1)
    first, right, wrong = [], [], []
    for i, text in enumerate(fresh):
        parts = text.split()
        first.append(parts[0])
        right.append(parts[1])
        wrong.append(fresh[(i + 1) % 60].split()[1])  # about the other thing
    begun = MaskedLanguageModel(**{**options, "max_iter": 1, "learning_rate": 1e-9})
    begun.fit(texts)
    chance = begun.follow_probability(first, right)
    assert np.abs(chance - 0.5).max() < 0.1
    assert begun.history_["pair_loss"][0] == pytest.approx(math.log(2), abs=0.02)
    model = MaskedLanguageModel(**{**options, "max_iter": 200}).fit(texts)
    # Half of all random pairs are about one thing as well: the best that anybody can
    # do is p = 2/3 for those and 0 for others, a loss of ¾ log 3 − ½ log 2.
    best = 0.75 * math.log(3) - 0.5 * math.log(2)
    assert model.history_["pair_loss"][-1] == pytest.approx(best, abs=0.06)
    yes = model.follow_probability(first, right)
    no = model.follow_probability(first, wrong)
    assert (yes > 0.5).mean() > 0.9 and (no < 0.5).mean() > 0.9


def test_the_row_of_a_pair_keeps_what_lies_next_to_the_cut():
    first, second = np.arange(10), np.arange(20, 30)
    row, segments = pair_of(first, second, 99, 10)
    assert row.tolist() == [99, 6, 7, 8, 9, 99, 20, 21, 22, 23]
    assert segments.tolist() == [0] * 6 + [1] * 4
    row, segments = pair_of(first[:2], second, 99, 10)
    assert row.tolist() == [99, 0, 1, 99, 20, 21, 22, 23, 24, 25]


# -- sizes and recipes ---------------------------------------------------------------


@pytest.mark.catalog("LM-13")
@pytest.mark.parametrize(
    ("changes", "published"),
    [({}, 109.5e6), ({"n_layers": 24, "width": 1024, "heads": 16}, 335.1e6)],
    ids=["base", "large"],
)
def test_published_sizes_of_bert(changes, published):
    config = {**PUBLISHED["bert-base"], **changes}
    with torch.device("meta"):
        found = count_parameters(Transformer(**config))
    V, T, d, n = (config[k] for k in ("n_tokens", "context", "width", "n_layers"))
    # Tokens, places, two segments and their norm; layers; the pooler.
    embeddings = (V + T + 2) * d + 2 * d
    assert found == embeddings + n * (12 * d * d + 13 * d) + d * d + d
    assert found == pytest.approx(published, rel=1e-3)


@pytest.mark.catalog("LM-14")
def test_without_pairs_there_is_no_second_task_and_places_are_drawn_again(small):
    assert small.pair_coef_ is None and small.config_["segments"] == 0
    assert set(small.history_) == {"loss", "validation_loss", "steps", "seconds"}
    loss = small.history_["validation_loss"]
    assert loss[-1] < loss[0] < math.log(257)
    task = MaskingTask(small, [TEXTS[0].encode()], None)
    rng = np.random.default_rng(0)
    one, other = (next(task.draw(rng, 1)) for _ in range(2))
    assert not torch.equal(one.y, other.y)
    with pytest.raises(ValueError, match="pairs=True"):
        small.follow_probability(["a"], ["b"])


# -- as any estimator ----------------------------------------------------------------


@pytest.mark.parametrize("pairs", [False, True])
def test_a_run_that_was_cut_off_goes_on_bit_for_bit(tmp_path, monkeypatch, pairs):
    class Stopped(Exception):
        pass

    texts = [". ".join(TEXTS[i : i + 3]) for i in range(40)] if pairs else TEXTS
    model = MaskedLanguageModel(pairs=pairs, **SMALL)
    whole = clone(model).fit(texts)
    plain = Checkpoints.save

    def save(self, run):
        plain(self, run)
        if run.epoch == 2:
            raise Stopped

    parts = clone(model).set_params(checkpoint=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        with pytest.raises(Stopped):
            parts.fit(texts)
    parts = clone(parts).fit(texts)
    assert weights(parts) == weights(whole)
    assert parts.history_["loss"] == whole.history_["loss"]


def test_vectors_depend_on_their_own_text_alone(small):
    alone = np.concatenate([small.transform([text]) for text in TEXTS[:2]])
    np.testing.assert_array_equal(small.transform([*TEXTS[:2], "other"])[:2], alone)
    states = attention.forward(
        small.config_,
        small.weights_,
        np.concatenate([[small.tokenizer_.special[END]], np.frombuffer(b"cat", "u1")]),
    )
    np.testing.assert_allclose(
        small.transform(["cat"])[0], states[1:].mean(axis=0), atol=1e-5
    )


def test_a_masked_language_model_precedes_a_classifier(small):
    y = np.array(["cat", "dog"] * 30)
    pipeline = make_pipeline(clone(small), LogisticRegression())
    assert pipeline.fit(TEXTS, y).score(TEXTS, y) == 1.0
    names = pipeline[0].get_feature_names_out()
    assert names[0] == "maskedlanguagemodel0" and len(names) == 16


def test_a_file_brings_back_the_same_vectors(small, tmp_path):
    small.save(tmp_path / "model.certus")
    again = certus.load(tmp_path / "model.certus")
    np.testing.assert_array_equal(
        again.transform(TEXTS[:2]), small.transform(TEXTS[:2])
    )
    assert again.get_params() == small.get_params()
    paired = MaskedLanguageModel(pairs=True, **{**SMALL, "max_iter": 2})
    paired.fit([". ".join(TEXTS[:3])] * 5).save(tmp_path / "pairs.certus")
    back = certus.load(tmp_path / "pairs.certus")
    assert back.follow_probability(["a"], ["b"]) == paired.follow_probability(
        ["a"], ["b"]
    )


def test_the_certificate_counts_hidden_places_and_finds_changed_numbers(small):
    found = certus.certify(small, TEXTS[:4])
    claim = found["masked_loss"]
    assert claim.strength is certus.certificate.Strength.MEASURED
    assert found["agreement"].met and found["bytes_counted"].met
    total, n = 0.0, 0
    for text in TEXTS[:4]:
        ids = np.frombuffer(text.encode(), np.uint8).astype(int)
        rng = np.random.default_rng(len(ids))
        places = np.sort(rng.permutation(len(ids))[: round(0.15 * len(ids))])
        total -= small.masked_log_probs(ids, places).sum()
        n += len(places)
    assert claim.value == pytest.approx(total / n, abs=1e-5)

    class Lying(MaskedLanguageModel):
        def masked_log_probs(self, ids, places):
            return super().masked_log_probs(ids, places) + 0.01

    Lying.__name__ = "MaskedLanguageModel"
    liar = clone(small).fit(TEXTS)
    liar.__class__ = Lying
    assert certus.certify(liar, TEXTS).met is False
