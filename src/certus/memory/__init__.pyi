# Written by `make stubs` from the rows of the package; do not edit.
from certus.memory.curves import CapacityCurve as CapacityCurve
from certus.memory.hopfield import HopfieldNetwork as HopfieldNetwork
from certus.memory.modern import ModernHopfield as ModernHopfield
from certus.memory.nand import NandNetwork as NandNetwork
from certus.memory.threshold_unit import ThresholdUnit as ThresholdUnit
from certus.memory.willshaw import WillshawMemory as WillshawMemory
from certus.memory.curves import capacity as capacity
from certus.memory.limits import cover_probability as cover_probability
from certus.memory.limits import pattern_information as pattern_information
from certus.memory.limits import willshaw_limits as willshaw_limits
