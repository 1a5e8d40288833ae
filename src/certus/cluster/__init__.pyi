# Written by `make stubs` from the rows of the package; do not edit.
from certus.cluster.n_clusters import Elbow as Elbow
from certus.cluster.kmeans import KMeans as KMeans
from certus.cluster.minibatch import MiniBatchKMeans as MiniBatchKMeans
from certus.cluster.spectral import SpectralClustering as SpectralClustering
from certus.cluster.n_clusters import elbow as elbow
from certus.cluster.seeding import kmeans_plusplus as kmeans_plusplus
