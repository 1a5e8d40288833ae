"""Parameters that models share are written once, and look as if they were not."""

from __future__ import annotations

import inspect
import re
from typing import get_args, get_type_hints

import pytest
from sklearn.base import clone

from certus import language, neural_network, representation, text
from certus.language.encoders import text_encoder
from certus.language.tuning import tuning_options
from certus.neural_network import parameters
from certus.representation import options

GROUPS = [
    parameters.TrainingOptions,
    parameters.LabelOptions,
    parameters.RobustOptions,
    parameters.RecurrentOptions,
    parameters.PerceptronOptions,
    text_encoder.EncoderOptions,
    text_encoder.EncoderShape,
    tuning_options.TuningOptions,
    tuning_options.RowOptions,
    tuning_options.StoppingOptions,
    tuning_options.PolicyOptions,
    tuning_options.RolloutOptions,
    options.EncoderTraining,
]
CLASSES = [
    neural_network.ConvNetClassifier,
    neural_network.MLPClassifier,
    neural_network.MLPRegressor,
    neural_network.MultiTaskNetwork,
    neural_network.NeuralClassifier,
    neural_network.NeuralRegressor,
    neural_network.RecurrentClassifier,
    neural_network.RecurrentRegressor,
    neural_network.Seq2Seq,
    neural_network.SequenceTagger,
    neural_network.ViTClassifier,
    text.TextConvClassifier,
    language.MaskedLanguageModel,
    language.SentenceEncoder,
    language.CharacterEncoder,
    language.FineTuned,
    language.RewardModel,
    language.DPO,
    language.PPO,
    language.GRPO,
    representation.ContrastiveEncoder,
    representation.PairedEncoder,
]


def entries(docstring: str) -> list[str]:
    return re.findall(r"^(\w+) : ", inspect.cleandoc(docstring), re.MULTILINE)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_explains_its_parameters_in_their_order(group):
    assert entries(group.__doc__) == list(group.__annotations__)


@pytest.mark.parametrize("cls", CLASSES)
def test_editors_scikit_learn_and_docstrings_see_the_same_parameters(cls):
    written = inspect.signature(cls.__init__.__wrapped__).parameters
    own = [p.name for p in written.values() if p.kind != p.VAR_KEYWORD][1:]
    (options,) = get_args(get_type_hints(cls.__init__.__wrapped__)["shared"])
    flat = inspect.signature(cls).parameters
    assert list(flat)[: len(own)] == own
    assert {*own, *get_type_hints(options)} == set(flat) == set(cls._get_param_names())
    section = cls.__doc__.split("Parameters\n")[1].split("Attributes\n")[0]
    said = entries(section.partition("\n")[2])
    assert said == list(dict.fromkeys([*own, *flat]))


@pytest.mark.parametrize("cls", CLASSES)
def test_parameters_are_stored_cloned_and_compared(cls):
    known = inspect.signature(cls).parameters.values()
    needed = {p.name: None for p in known if p.default is p.empty}
    model = cls(**needed, max_iter=7)
    assert model.max_iter == 7
    assert clone(model).get_params() == model.get_params()
    assert "max_iter=7" in repr(model)
    with pytest.raises(TypeError, match=rf"^{cls.__name__}\(\) .*'toll'"):
        cls(**needed, toll=0.5)
