"""Group ``classifier``: what boosting is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.groups.choices import Clip, FloatType, Learner
from pipeline.groups.ranges import check, whole


@dataclass
class Classifier:
    """Group ``classifier``: the parameters of ``LogitBoostClassifier``."""

    learner: Learner = Learner.subspace  # what is fitted in each round
    n_rounds: int = 100  # boosting rounds
    learning_rate: float = 0.3  # share of each fit that is added
    z_max: float = 3.0  # largest working response
    clip: Clip = Clip.gradient  # weight where the response is cut: keep the gradient, or as in the paper
    l2: float = 1.0  # ridge penalty
    subspace_size: int = 128  # subspace: random features of a round
    n_components: int = 512  # random_features: cosines of a round
    gamma: list[float] = field(default_factory=lambda: [0.1, 0.1])  # random_features: kernel widths
    trim: float = 0.0  # share of the total weight whose lightest images a round may skip
    early_stopping: bool = False  # stop when the loss on watched images (split.validation) no longer falls
    patience: int = 10  # early_stopping: rounds without improvement
    class_weight: str | None = None  # balanced: each class counts the same
    dtype: FloatType = FloatType.float32  # precision of the boosting sums
    random_state: int = 0  # seed of everything random in boosting
    gram_precision: str = "full"  # gpu with float32: "tf32" builds the Gram matrices on tensor cores

    def __post_init__(self) -> None:
        check(
            self.gram_precision in ("full", "tf32"),
            "classifier.gram_precision",
            self.gram_precision,
            "full or tf32",
        )
        whole("classifier.n_rounds", self.n_rounds, 1, 1_000_000)
        check(
            0.0 < self.learning_rate <= 1.0,
            "classifier.learning_rate",
            self.learning_rate,
            "above 0 and at most 1",
        )
        check(0.0 < self.z_max <= 1e6, "classifier.z_max", self.z_max, "above 0 and at most 1e6")
        check(0.0 <= self.l2 <= 1e12, "classifier.l2", self.l2, "from 0 to 1e12")
        whole("classifier.subspace_size", self.subspace_size, 1, 65_536)
        whole("classifier.n_components", self.n_components, 1, 65_536)
        ok = len(self.gamma) == 2 and 0.0 < self.gamma[0] <= self.gamma[1] <= 1e6
        check(
            ok,
            "classifier.gamma",
            self.gamma,
            "two numbers above 0 and at most 1e6: [smallest, largest] width",
        )
        check(0.0 <= self.trim <= 0.999, "classifier.trim", self.trim, "from 0 to 0.999")
        whole("classifier.patience", self.patience, 1, 1_000_000)
        check(
            self.class_weight in (None, "balanced"),
            "classifier.class_weight",
            self.class_weight,
            "null or balanced",
        )
        check(
            0 <= self.random_state < 2**32,
            "classifier.random_state",
            self.random_state,
            "from 0 to 4294967295",
        )
