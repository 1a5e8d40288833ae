# Written by `make stubs` from the rows of the package; do not edit.
from certus.neighbors.bayes import BayesClassifier as BayesClassifier
from certus.neighbors.classifier import KNeighborsClassifier as KNeighborsClassifier
from certus.neighbors.regressor import KNeighborsRegressor as KNeighborsRegressor
from certus.neighbors.unsupervised import NearestNeighbors as NearestNeighbors
from certus.neighbors.bayes import Risk as Risk
