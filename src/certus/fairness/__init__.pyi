# Written by `make stubs` from the rows of the package; do not edit.
from certus.fairness.excluding import Conflict as Conflict
from certus.fairness.penalty import CovariancePenalty as CovariancePenalty
from certus.fairness.decorrelation import Decorrelation as Decorrelation
from certus.fairness.excluding import Exclusivity as Exclusivity
from certus.fairness.tradeoff import Frontier as Frontier
from certus.fairness.gaps import GroupGap as GroupGap
from certus.fairness.reduction import GroupReduction as GroupReduction
from certus.fairness.table import GroupTable as GroupTable
from certus.fairness.thresholds import GroupThresholds as GroupThresholds
from certus.fairness.recovering import Recovery as Recovery
from certus.fairness.scored import calibration as calibration
from certus.fairness.excluding import exclusivity as exclusivity
from certus.fairness.tradeoff import frontier as frontier
from certus.fairness.measures import independence as independence
from certus.fairness.recovering import recovery as recovery
from certus.fairness.measures import separation as separation
from certus.fairness.measures import sufficiency as sufficiency
