"""SOCM as torchmetrics metrics: they accumulate over batches, merge, and synchronise over processes, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from poolscope.clouds import TokenClouds, as_matrix
from poolscope.errors import InputError, require
from poolscope.metrics.socm.measure import socm
from poolscope.metrics.socm.pair import SocmFormula
from poolscope.metrics.socm.result import SocmResult

require("torchmetrics", "train")

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torchmetrics import Metric  # noqa: E402
from torchmetrics.utilities import dim_zero_cat  # noqa: E402

from poolscope.connect.integrations.regularizer import token_mask  # noqa: E402


class _Socm(Metric):
    """Base of both metrics: the formula, and the methods that torchmetrics calls."""

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    plot_lower_bound = 0.0

    def __init__(self, *, formula: SocmFormula | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.formula = formula or SocmFormula()

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """A figure of one value or of several, by torchmetrics; by default of what `compute` gives."""
        return self._plot(val, ax)


class SOCM(_Socm):
    """Mean SOCM over all pairs of all texts seen; equals `poolscope.socm` of their clouds.

    A mean over all pairs is no sum over batches: pairs across batches, and across processes, belong to it. The state is
    therefore the clouds themselves, which merge by putting one behind the other (4·d bytes a token in float32). For a
    bounded state give the pairs: `PairedSOCM`.

    >>> metric = SOCM()
    >>> metric.update(torch.tensor([[[1.0, 1.0], [1.0, -1.0]]]))
    >>> metric.update(torch.tensor([[[1.0, 2.0], [1.0, -2.0], [9.0, 9.0]]]), torch.tensor([[1, 1, 0]]))
    >>> metric.compute()
    tensor(0.2500)
    """

    tokens: list[Tensor]
    lengths: list[Tensor]

    def __init__(self, *, formula: SocmFormula | None = None, **settings: Any) -> None:
        super().__init__(formula=formula, **settings)
        self.add_state("tokens", default=[], dist_reduce_fx="cat")
        self.add_state("lengths", default=[], dist_reduce_fx="cat")

    def update(self, tokens: Tensor, mask: Tensor | None = None) -> None:
        """Add texts: tokens (texts × positions × d) and a 0/1 mask (texts × positions; None: all are tokens)."""
        keep = token_mask(tokens, mask)
        self.tokens.append(tokens.detach()[keep])
        self.lengths.append(keep.sum(dim=1))

    def compute(self) -> Tensor:
        """The mean over all pairs; at least two texts are needed."""
        return _scalar(self.result().mean, self.device)

    def result(self) -> SocmResult:
        """The whole result over what this process holds: interval, quantiles, worst pairs."""
        if not len(self.lengths):
            raise InputError("received no texts yet; call update with at least two texts before compute.")
        lengths = dim_zero_cat(self.lengths).cpu().numpy()
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return socm(TokenClouds.from_matrix(as_matrix(dim_zero_cat(self.tokens)), offsets), **self.formula.to_dict())


class PairedSOCM(_Socm):
    """Mean SOCM over given pairs of texts, such as a query with its hard negative; state: a sum and a count.

    >>> metric = PairedSOCM()
    >>> left, right = torch.tensor([[[1.0, 1.0], [1.0, -1.0]]]), torch.tensor([[[1.0, 2.0], [1.0, -2.0]]])
    >>> metric(left, right)
    tensor(0.2500)
    """

    total: Tensor
    pairs: Tensor

    def __init__(self, *, formula: SocmFormula | None = None, **settings: Any) -> None:
        super().__init__(formula=formula, **settings)
        self.add_state("total", default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("pairs", default=torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(
        self, left: Tensor, right: Tensor, left_mask: Tensor | None = None, right_mask: Tensor | None = None
    ) -> None:
        """Add pairs: text k of `left` with text k of `right`, each (texts × positions × d) with its mask."""
        if len(left) != len(right):
            raise InputError(
                f"received {len(left)} and {len(right)} texts; pair k is text k of both. Pass equally many."
            )
        clouds, others = (
            TokenClouds.from_padded(tokens, token_mask(tokens, mask))
            for tokens, mask in ((left, left_mask), (right, right_mask))
        )
        measured = socm(clouds, others, pairs=[(k, k) for k in range(len(clouds))], **self.formula.to_dict())
        self.total += measured.mean * measured.count
        self.pairs += measured.count

    def compute(self) -> Tensor:
        """The mean over the pairs seen."""
        if not int(self.pairs):
            raise InputError("received no pairs yet; call update before compute.")
        return _scalar(float(self.total) / int(self.pairs), self.device)


def _scalar(value: float, device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=torch.float32, device=device)
