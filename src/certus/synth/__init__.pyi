# Written by `make stubs` from the rows of the package; do not edit.
from certus.synth.chow_liu import ChowLiuTree as ChowLiuTree
from certus.synth.models import MODELS as MODELS
from certus.synth.synthesizer import TableSynthesizer as TableSynthesizer
