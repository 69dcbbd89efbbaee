"""SOCM as a sentence-transformers evaluator: in a trainer after every so many steps, or called by hand."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from poolscope.clouds import TokenClouds
from poolscope.encoders.base import check_texts
from poolscope.encoders.door import encode
from poolscope.errors import InputError, require
from poolscope.folder import Folder
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.pair import SocmFormula
from poolscope.metrics.socm.result import SocmResult
from poolscope.numbers.moments import text_moments, within_text_cosine
from poolscope.words import logger

require("sentence_transformers", "train")

from sentence_transformers.base.evaluation import BaseEvaluator  # noqa: E402

_LOG = logger(__name__)


class SOCMEvaluator(BaseEvaluator):  # type: ignore[misc]
    """How much mean pooling hides between these texts, measured on the model as it is now; lower hides less.

    Returns "socm" with its 95 % interval for the population of texts ("socm_low", "socm_high", left out where the texts
    are too few), "d_mu", "d_sigma", "concentration_ratio" and "within_text_cosine" (means over texts), each after
    `name_`. With `pairs`, that many random pairs in place of all (`seed`). `options` are those of `poolscope.encode`,
    such as prompt or max_length. With `output_path` a line is added to a CSV file there. The whole result of the last
    call is `last`.

    A low value is not a goal in itself: it says that the second moment adds little, not that the means rank well.
    """

    def __init__(
        self,
        texts: Sequence[str],
        *,
        name: str = "",
        pairs: int | None = None,
        seed: int = 0,
        formula: SocmFormula | None = None,
        write_csv: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.texts = check_texts(texts)
        if len(self.texts) < 2:
            raise InputError("texts: received one text; SOCM compares pairs, so at least two are needed.")
        self.name = name
        self.pairs = pairs
        self.seed = seed
        self.formula = formula or SocmFormula()
        self.write_csv = write_csv
        self.options = options
        self.primary_metric = "socm"
        self.greater_is_better = False
        self.last: SocmResult | None = None

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Encode the texts, measure, and return the numbers by name."""
        clouds = encode(model, self.texts, **self.options)
        self.last = socm(clouds, pairs=self.pairs, seed=self.seed, **self.formula.to_dict())
        numbers = _numbers(self.last, clouds)
        _LOG.info("SOCM of %d texts at epoch %s, step %s: %s", len(clouds), epoch, steps, self.last)
        if output_path is not None and self.write_csv:
            self._write(Path(output_path), {"epoch": epoch, "steps": steps, **numbers})
        metrics: dict[str, float] = self.prefix_name_to_metrics(numbers, self.name)
        if hasattr(model, "model_card_data"):  # anything that `encode` takes can be evaluated; only these have a card
            self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics

    @property
    def description(self) -> str:
        """How the model card names this evaluator."""
        return "Second-Order Collapse (SOCM)"

    def get_config_dict(self) -> dict[str, Any]:
        """What the model card says of this evaluator."""
        return {"texts": len(self.texts), "pairs": self.pairs, **self.formula.to_dict(), **self.options}

    def _write(self, folder: Path, row: dict[str, float]) -> None:
        """Add a line to the CSV file, with the names above the first."""
        name = f"socm_evaluation{'_' if self.name else ''}{self.name}_results.csv"
        with Folder.open(folder) as opened:
            lines = io.StringIO()
            writer = csv.DictWriter(lines, list(row), lineterminator="\n")
            if opened.kind(name) != "file":
                writer.writeheader()
            writer.writerow(row)
            opened.append(name, lines.getvalue())


def _numbers(result: SocmResult, clouds: TokenClouds) -> dict[str, float]:
    interval = result.interval
    bounds = {} if interval is None else {"socm_low": interval.low, "socm_high": interval.high}
    cosines = [within_text_cosine(cloud) for cloud in clouds]
    return {
        "socm": result.mean,
        **bounds,
        "d_mu": result.mean_distance,
        "d_sigma": result.covariance_distance,
        "concentration_ratio": float(text_moments(clouds).traces.mean()),
        "within_text_cosine": sum(cosines) / len(cosines),
    }
