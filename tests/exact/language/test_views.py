"""Surprise, attention and use of context: against plain NumPy, and known sources."""

from __future__ import annotations

import base64
import re
import struct
import zlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from certus.language import LanguageModel, MixtureOfModels, NGramModel  # noqa: E402
from certus.language.views.attention_maps import _png  # noqa: E402
from certus.language.views.colouring import coloured, readable  # noqa: E402
from certus.report import text_report  # noqa: E402

TEXT = "the cat sat on the mat and the dog sat on the cat. " * 60


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return LanguageModel(
        n_layers=2,
        width=32,
        heads=2,
        context=32,
        position="learned",
        qk_norm=False,
        max_iter=60,
        random_state=0,
    ).fit(TEXT)


@pytest.mark.catalog("LM-01")
def test_the_bits_of_the_tokens_add_up_to_those_of_the_text(
    model: LanguageModel,
) -> None:
    counted = NGramModel(3).fit(TEXT)
    mixed = MixtureOfModels([model, counted]).fit("the dog sat.")
    texts = ["the dog sat on the mat.", "café"]
    for one in (model, counted, mixed):
        found = one.surprise(texts)
        assert found.bits_per_byte == pytest.approx(one.bits_per_byte(texts), rel=1e-12)
        assert b"".join(found.tokens) == "".join(texts).encode()
        assert found.n_bytes == sum(len(t.encode()) for t in texts)
        assert found.to_frame().height == len(found.ids)


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.catalog("TRF-04", "TRF-07", "TRF-09")
def test_the_maps_of_the_first_layer_are_those_of_the_formula(
    model: LanguageModel,
) -> None:
    """softmax(QKᵀ/√d) over the past, from the weights, in NumPy."""
    found = model.attention("the dog sat")
    w = {name: value.astype(np.float64) for name, value in model.weights_.items()}
    ids = np.append(256, np.frombuffer(b"the dog sat", np.uint8))
    x = w["embedding.weight"][ids] + w["positions"][: len(ids)]
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1) + 1e-5)[:, None]
    x = x * w["layers.0.attention_norm.weight"] + w["layers.0.attention_norm.bias"]
    qkv = x @ w["layers.0.attention.qkv.weight"].T + w["layers.0.attention.qkv.bias"]
    n, d = len(ids), 16
    q, k = (part.reshape(n, 2, d).swapaxes(0, 1) for part in np.split(qkv, 3, 1)[:2])
    z = q @ k.swapaxes(1, 2) / np.sqrt(d)
    z[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
    np.testing.assert_allclose(found.weights[0], softmax(z), atol=1e-5)
    np.testing.assert_allclose(found.weights.sum(axis=3), 1.0, atol=1e-5)
    assert not np.triu(found.weights, 1).any()
    assert found.tokens[0] == b"" and b"".join(found.tokens) == b"the dog sat"


def test_the_last_tokens_of_a_long_text_are_used(model: LanguageModel) -> None:
    found = model.attention(TEXT)
    assert found.weights.shape == (2, 2, 32, 32)
    assert b"".join(found.tokens) == TEXT.encode()[-32:]


def test_the_table_of_heads_knows_the_common_heads(model: LanguageModel) -> None:
    n = 5
    same, before = np.eye(n), np.eye(n, k=-1)
    before[0, 0] = 1.0
    first = np.zeros((n, n))
    first[:, 0] = 1.0
    maps = type(model.attention("a"))(np.stack([[same, before, first]]), [b"a"] * n)
    table = maps.to_frame()
    assert table["looks back"].to_list() == pytest.approx([0, 0.8, 2.0])
    assert table["itself"].to_list() == pytest.approx([1.0, 0.2, 0.2])
    assert table["one before"].to_list() == pytest.approx([0.0, 1.0, 0.25])
    assert table["first"].to_list() == pytest.approx([0.0, 0.25, 1.0])


def test_context_use_is_what_the_network_gives_for_fewer_tokens(
    model: LanguageModel,
) -> None:
    text = TEXT[:150].encode()
    found = model.context_use(text)
    stream = np.append(256, np.frombuffer(text, np.uint8))
    for i, k in enumerate(found.contexts):
        bits = []
        for t in range(32, len(stream)):
            with torch.no_grad():
                z = model.network_(torch.as_tensor(stream[t - k : t])[None]).output
            p = softmax(z[0, -1].double().numpy())
            bits.append(-np.log2(p[stream[t]]))
        assert found.bits[i] == pytest.approx(np.mean(bits), abs=1e-4)
    assert found.n_places == len(stream) - 32
    assert found.gains[-1] == 0.0
    assert np.all(found.low <= found.bits) and np.all(found.bits <= found.high)


def test_a_longer_context_gains_nothing_on_a_source_without_memory() -> None:
    """Each letter depends on the one before; only one token of context helps."""
    rng = np.random.default_rng(0)
    law = np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.1, 0.0, 0.9]])
    at, letters = 0, []
    for u in rng.random(30_000):
        at = int(np.searchsorted(law[at].cumsum(), u))
        letters.append("abc"[at])
    text = "".join(letters)
    model = LanguageModel(
        n_layers=1, width=16, heads=1, context=16, max_iter=300, random_state=0
    ).fit(text[:20_000])
    found = model.context_use(text[20_000:])
    entropy = -(0.9 * np.log2(0.9) + 0.1 * np.log2(0.1))
    assert found.low[-1] - 0.05 < entropy < found.high[-1] + 0.05
    assert abs(found.gains[0]) < 0.06
    one = model.context_use("ab")
    assert one.n_places == 2 and one.contexts.tolist() == [1]


# -- pictures ---------------------------------------------------------------------


def test_characters_that_tokens_share_are_shown_whole() -> None:
    data = "é日a".encode()
    tokens = [data[i : i + 1] for i in range(len(data))]
    assert list(readable(tokens, np.ones(6))) == [("é", 2.0), ("日", 3.0), ("a", 1.0)]
    broken = [b"\xe2", b"", b"\x82", b"z"]
    pieces = [words for words, _ in readable(broken, np.ones(4))]
    assert pieces == ["\\xe2", "∎", "\\x82", "z"]


def test_texts_are_escaped_and_nothing_is_run() -> None:
    page = coloured([b"<b>&\"'", b"\x00\x1b[31m", "‮".encode()], np.array([1, 2, 9]))
    assert "<b>" not in page and "&lt;b&gt;&amp;" in page
    assert "\x00" not in page and "\x1b" not in page and "‮" not in page


def test_a_map_is_a_picture_whose_opacity_is_the_weight() -> None:
    A = np.array([[1.0, 0.0], [0.25, 0.75]])
    data = base64.b64decode(_png(A).removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    parts, at = {}, 8
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        (check,) = struct.unpack(">I", data[at + 8 + size : at + 12 + size])
        assert check == zlib.crc32(name + body)
        parts[name], at = body, at + 12 + size
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(2, 3)
    opacity = np.array(list(parts[b"tRNS"]))[rows[:, 1:]] / 255
    np.testing.assert_allclose(opacity**2, A, atol=0.01)


def test_the_page_stands_alone(model: LanguageModel, tmp_path) -> None:
    text = b"<script>alert(1)</script> \x00\xff caf\xc3\xa9"
    page = text_report(model, text).to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert "<script" not in page and "&lt;" in page
    # The only addresses are pictures inside of the page.
    found = re.findall(r'(?:src|href)="([^"]{0,20})', page)
    assert found and all(place.startswith("data:image/png") for place in found)
    assert "prefers-color-scheme: dark" in page
    assert "Where do the heads look?" in page and "see more of the text" in page
    counted = text_report(NGramModel(2).fit(TEXT), "a").to_html()
    assert "surprise the model" in counted and "heads look" not in counted


def test_the_layer_and_head_asked_for_must_exist(model: LanguageModel) -> None:
    maps = model.attention("the dog")
    with pytest.raises(ValueError, match="layer must be from 1 to 2, got 3"):
        maps.plot(layer=3)
    from matplotlib.figure import Figure

    assert len(maps.plot(Figure(), layer=2, head=1).axes) == 2  # and the colours
