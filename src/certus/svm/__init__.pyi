# Written by `make stubs` from the rows of the package; do not edit.
from certus.svm.linear import LinearSVC as LinearSVC
from certus.svm.linear import LinearSVR as LinearSVR
from certus.svm.one_class import OneClassSVM as OneClassSVM
from certus.svm.svc import SVC as SVC
from certus.svm.svr import SVR as SVR
