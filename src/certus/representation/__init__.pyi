# Written by `make stubs` from the rows of the package; do not edit.
from certus.representation.colours import Colorizer as Colorizer
from certus.representation.contrastive import ContrastiveEncoder as ContrastiveEncoder
from certus.representation.masked import MaskedAutoencoder as MaskedAutoencoder
from certus.representation.paired import PairedEncoder as PairedEncoder
from certus.representation.patches import PatchPosition as PatchPosition
from certus.representation.measures import effective_rank as effective_rank
from certus.representation.measures import nt_xent as nt_xent
from certus.representation.probing import probe as probe
from certus.representation.measures import retrieval as retrieval
