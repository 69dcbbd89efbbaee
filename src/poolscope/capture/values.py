"""What attention hands on in place of hidden states: its values, and its branch, over a range of layers.

The parts of a layer are those that `capture` finds. Hooks at them add up what passes while batches run; the model goes
on with its own numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal
from weakref import WeakKeyDictionary

from numpy.typing import NDArray

from poolscope.capture.model import OpenModel, token_rows
from poolscope.capture.sites import Site
from poolscope.clouds import TokenClouds
from poolscope.encoders.base import Progress, TokenEncoder
from poolscope.encoders.batching import Batch, BatchPlan, plan_clouds, run_batches
from poolscope.encoders.capabilities import attention_of, options_of, planner_of
from poolscope.errors import InputError, ModelError

Part = Literal["values", "branch"]

_SITES: WeakKeyDictionary[Any, Sequence[Site]] = WeakKeyDictionary()


def handed_on(
    encoder: TokenEncoder,
    texts: Sequence[str],
    plan: BatchPlan,
    *,
    part: Part,
    low: float = 0.0,
    high: float = 1.0,
    progress: Progress | None = None,
) -> TokenClouds:
    """Of every token of a plan the mean over layers of its values, or of its attention branch.

    part: "values" are v = U W_V of every key/value head, concatenated (tokens × heads·size); "branch" is what the
    output projection gives, Σ_h A_h V_h W_O (tokens × d). The layers are those from `low` to `high` of the depth; a
    mean over them has the direction of their sum.
    """
    sites = _sites(encoder)
    first, last = (round(share * len(sites)) for share in (low, high))
    if not 0 <= first < last <= len(sites):
        raise InputError(
            f"low, high: received {low!r} and {high!r}; allowed: 0 ≤ low < high ≤ 1, with at least one of the "
            f"{len(sites)} layers between them."
        )
    planner, number = planner_of(encoder), -1 if encoder.card.layers is None else encoder.card.layers
    with _gathering(sites[first:last], part, name=encoder.card.name) as sums, planner.workers([number]) as workers:

        def run(batch: Batch) -> dict[int, NDArray[Any]]:
            sums.clear()
            workers[0](batch)
            return {number: token_rows(sums[0] / (last - first), batch.keep)}

        matrix = run_batches(plan, [run], progress=progress)[number]
    about = {"model": encoder.card.to_dict(), "options": options_of(encoder).content(), "layer": -1}
    return plan_clouds(texts, plan, matrix, {**about, "part": part, "layers": [first + 1, last]})


def _sites(encoder: TokenEncoder) -> Sequence[Site]:
    """Where the parts of the layers are; found once for a model, since that takes a pass."""
    model = attention_of(encoder)[0]
    if model not in _SITES:
        _SITES[model] = OpenModel(encoder).sites
    return _SITES[model]


@contextmanager
def _gathering(sites: Sequence[Site], part: Part, *, name: str) -> Iterator[list[Any]]:
    """While open, the one entry of the list is the sum over these layers of what passed in the last batch."""
    sums: list[Any] = []

    def add(output: Any) -> None:
        if not sums:
            sums.append(output.float())
        elif sums[0].shape != output.shape:
            raise ModelError(
                f"{name}: its layers have values of different sizes ({sums[0].shape[-1]} and {output.shape[-1]}), of "
                f"which no mean can be taken. Ask for layers of one size: low and high."
            )
        else:
            sums[0] = sums[0] + output.float()

    def hook(columns: list[int] | None) -> Any:
        return lambda module, args, output: add(output if columns is None else output[..., columns])

    handles = []
    try:
        for site in sites:
            projections = site.projections
            taken = projections.value if part == "values" else projections.output
            columns = list(projections.columns) if part == "values" and projections.merged else None
            handles.append(taken.module.register_forward_hook(hook(columns)))
        yield sums
    finally:
        for handle in handles:
            handle.remove()
