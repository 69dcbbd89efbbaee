"""Is everything in one cone: how much of every vector is the same direction?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolscope.charts.files import COLOURS, GREY, style
from poolscope.errors import InputError, require
from poolscope.numbers.intervals import Estimate, jackknife_interval
from poolscope.numbers.ranking import unit_rows
from poolscope.results import Result, bulk, origin, provenance

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False, kw_only=True)
class Cone(Result):
    """The cone that the vectors of a corpus lie in.

    `mean_cosine` is the mean over all pairs of different texts, with its interval for the population of texts; its
    floor is 0, what vectors without a preferred direction give. `mean_norm` is the norm of the mean of the vectors at
    length 1, in [0, 1]: 1 when all point the same way. `per_text` is the mean cosine of each text with all others.
    """

    texts: int
    dimension: int
    mean_cosine: Estimate
    mean_norm: float
    per_text: Array = bulk(required=True)
    direction: Array = bulk(required=True)
    provenance: Mapping[str, Any] = origin()

    def rows(self) -> list[dict[str, Any]]:
        """One row a text: its mean cosine with all others."""
        return [{"position": k, "mean_cosine": cosine} for k, cosine in enumerate(self.per_text.tolist())]

    def figure(self) -> Any:
        """Histogram of the mean cosines of the texts with all others."""
        return cone_figure(self)


def cone(vectors: ArrayLike) -> Cone:
    """Mean cosine and norm of the mean of vectors (N × d), exact, without going through the pairs.

    With u_i at length 1 and s = Σ u_i, the mean cosine over pairs is (‖s‖² − N)/(N(N − 1)), and that of text i with all
    others (u_i·s − 1)/(N − 1). The interval leaves out one text at a time; None for two texts.

    Parameters
    ----------
    vectors : matrix
        One row a text (N × d), at least two; their lengths do not count.

    Returns
    -------
    Cone
        The mean cosine with its interval, the norm of the mean, the mean cosine of each text.

    Examples
    --------
    >>> result = cone([[1, 0], [0, 1], [1, 1]])
    >>> round(result.mean_cosine.value, 4), round(result.mean_norm, 4)      # (0 + √½ + √½)/3
    (0.4714, 0.8047)

    """
    unit = unit_rows(vectors, "vectors").astype(np.float64)
    count = len(unit)
    if count < 2:
        raise InputError("received one vector; a cosine is between two. Pass at least two texts.")
    total = unit.sum(axis=0)
    per_text = unit @ total - 1
    pairs = count * (count - 1) // 2
    return Cone(
        texts=count,
        dimension=unit.shape[1],
        mean_cosine=Estimate(
            float(per_text.sum() / 2 / pairs),
            jackknife_interval([per_text], [count - 1], float(per_text.sum() / 2), pairs),
            floor=0.0,
        ),
        mean_norm=float(np.linalg.norm(total) / count),
        per_text=per_text / (count - 1),
        direction=total / count,
        provenance=provenance(settings={}),
    )


def cone_figure(shared: Cone, *, note: str = "") -> Any:
    """Mean cosine of each text with all others, as a histogram; `note` goes on in the title."""
    go = require("plotly.graph_objects", "report")
    counts, edges = np.histogram(shared.per_text, 60)
    figure = go.Figure(
        go.Bar(
            x=(edges[:-1] + edges[1:]) / 2,
            y=counts,
            width=np.diff(edges),
            marker={"color": COLOURS[0]},
            hovertemplate="mean cosine %{x:.3f}: %{y} texts<extra></extra>",
            showlegend=False,
        )
    )
    figure.add_vline(0, line={"color": GREY, "dash": "dash"})
    title = "How much a text shares with all others"
    figure = style(figure, title=f"{title} · {note}" if note else title, width=860, height=380)
    figure.update_xaxes(title_text="mean cosine with all other texts (0: no preferred direction)")
    figure.update_yaxes(title_text="texts")
    return figure
