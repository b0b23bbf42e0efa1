"""Graph neural networks as Spark ML estimators: they work in `Pipeline`, `CrossValidator` and `TrainValidationSplit`.

    classifier = lotan.ml.GNNClassifier(modelType="gcn", hiddenChannels=64, engine="local").setEdges(edges)
    model = classifier.fit(vertices)
    model.transform(vertices).select("id", "prediction", "probability")

docs/reference/ml.md says what a fold of a graph is, and which rows train.
"""

from lotan.ml.classification import GNNClassificationModel, GNNClassifier
from lotan.ml.link_prediction import GNNLinkPredictionModel, GNNLinkPredictor
from lotan.ml.regression import GNNRegressionModel, GNNRegressor

__all__ = [
    "GNNClassificationModel",
    "GNNClassifier",
    "GNNLinkPredictionModel",
    "GNNLinkPredictor",
    "GNNRegressionModel",
    "GNNRegressor",
]
