# Written by `make stubs` from the rows of the package; do not edit.
from certus.calibration.platt import PlattClassifier as PlattClassifier
from certus.calibration.threshold import ThresholdClassifier as ThresholdClassifier
