"""J-class LogitBoost with weighted-least-squares learners, written once over the backend's array namespace."""

from pipeline.boosting.estimator import LogitBoostClassifier

__all__ = ["LogitBoostClassifier"]
