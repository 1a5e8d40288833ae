# Written by `make stubs` from the rows of the package; do not edit.
from certus.recommend.ranking import Evaluation as Evaluation
from certus.recommend.implicit import ImplicitALS as ImplicitALS
from certus.recommend.matrix import MatrixFactorization as MatrixFactorization
from certus.recommend.recommending import Ranked as Ranked
from certus.recommend.splits import RatingSplit as RatingSplit
from certus.recommend.ranking import auc as auc
from certus.recommend.ranking import average_precision as average_precision
from certus.recommend.ranking import coverage as coverage
from certus.recommend.ranking import evaluate as evaluate
from certus.recommend.splits import fold_ratings as fold_ratings
from certus.recommend.ranking import hit_rate as hit_rate
from certus.recommend.ranking import ndcg as ndcg
from certus.recommend.ranking import precision_at_k as precision_at_k
from certus.recommend.ranking import recall_at_k as recall_at_k
from certus.recommend.splits import split_ratings as split_ratings
