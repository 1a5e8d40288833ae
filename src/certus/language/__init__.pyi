# Written by `make stubs` from the rows of the package; do not edit.
from certus.language.tokenizers import BPETokenizer as BPETokenizer
from certus.language.tokenizers import ByteTokenizer as ByteTokenizer
from certus.language.copies import Contamination as Contamination
from certus.language.copies import ExtractionRate as ExtractionRate
from certus.language.language_model import LanguageModel as LanguageModel
from certus.language.copies import LongestCopy as LongestCopy
from certus.language.mixture import MixtureOfModels as MixtureOfModels
from certus.language.ngram import NGramModel as NGramModel
from certus.language.progress import TrainingProgress as TrainingProgress
from certus.language.simple_means import baselines as baselines
from certus.language.findings import bits_difference as bits_difference
from certus.language.copies import contamination as contamination
from certus.language.findings import decoding_gap as decoding_gap
from certus.language.findings import entropy_excess as entropy_excess
from certus.language.copies import extraction_rate as extraction_rate
from certus.language.copies import longest_copy as longest_copy
from certus.language.huggingface import read_gpt2 as read_gpt2
