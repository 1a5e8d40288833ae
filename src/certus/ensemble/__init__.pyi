# Written by `make stubs` from the rows of the package; do not edit.
from certus.ensemble.boosted_classifier import BoostedTreesClassifier as BoostedTreesClassifier
from certus.ensemble.boosted_regressor import BoostedTreesRegressor as BoostedTreesRegressor
from certus.ensemble.extra_classifier import ExtraTreesClassifier as ExtraTreesClassifier
from certus.ensemble.extra_regressor import ExtraTreesRegressor as ExtraTreesRegressor
from certus.ensemble.hist_classifier import HistGradientBoostingClassifier as HistGradientBoostingClassifier
from certus.ensemble.hist_regressor import HistGradientBoostingRegressor as HistGradientBoostingRegressor
from certus.ensemble.forest_classifier import RandomForestClassifier as RandomForestClassifier
from certus.ensemble.forest_regressor import RandomForestRegressor as RandomForestRegressor
from certus.ensemble.reading import TreeEnsemble as TreeEnsemble
from certus.ensemble.reading import read_rows as read_rows
from certus.ensemble.reading import read_trees as read_trees
from certus.ensemble.reading import score_range as score_range
