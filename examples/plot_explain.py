"""
Contributions that add up
=========================

A boosted ensemble predicts how a disease progresses. Each prediction is divided among
the columns, exactly, and it is proved that the parts add up. The last picture shows one
column: what its values contribute.
"""

import matplotlib.pyplot as plt
from sklearn.ensemble import HistGradientBoostingRegressor

import certus
from certus.explanations import nearest_change
from certus.tables import TablePipeline, load_example

frame, target = load_example()
X, y = frame.drop(target), frame[target]
model = TablePipeline(estimator=HistGradientBoostingRegressor(max_iter=40)).fit(X, y)

# %%
# The rows are compared with 100 others. The base value is the mean prediction for
# these.

found = certus.explain(model, X[:150], background=X[200:300])
print(found)
print(found.certificate)

# %%
# One patient: from the base value to the prediction.

found.plot(kind="waterfall", row=0)
plt.show()

# %%
# All patients: a point for each, coloured by the value of the column.

found.plot(kind="beeswarm")
plt.show()

# %%
# One column: its values, and what they contribute.

found.plot(kind="shape", column="log_triglycerides")
plt.show()

# %%
# What would bring this patient below 140?

print(nearest_change(model, X[:1], X[200:300], threshold=140).verdict)
