"""Tables as blocks: see :mod:`certus.blocks.sources`, which every ``fit`` uses too."""

from certus.blocks.keys import Blocks as Blocks
from certus.blocks.sources import blocks as blocks
