"""A transformer whose layers can be watched while texts go through it, and what is handed out of them.

A pass is watched at the sites of its layers: each layer's quantities are handed on when the layer ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from poolscope.clouds import TokenClouds
from poolscope.encoders import Progress, TokenEncoder, as_encoder
from poolscope.encoders.base import check_layers, check_texts
from poolscope.encoders.batching import Batch, BatchPlan, Forward, in_order, run_batches, token_clouds
from poolscope.encoders.capabilities import as_numpy, attention_of, options_of, planner_of
from poolscope.encoders.sites import (
    Site,
    attention_tap,
    check_weights,
    close,
    equal,
    find_sites,
    first_tensor,
    has_final_norm,
    hidden,
    is_sum,
    recomposed,
    trace,
)
from poolscope.errors import InputError, ModelError

# -- watching a pass --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerCapture:
    """What one layer computed for a batch, as the model's own tensors (texts × n × d, padding included).

    H input; U input of the value projection (H itself, or a norm of it); `projected` output of W_O; Z attention branch
    (`projected`, or a norm of it); Y = H + Z; X output; A attention weights (texts × heads × n × n).
    """

    number: int
    site: Site
    H: Any
    U: Any
    projected: Any
    Z: Any
    Y: Any
    X: Any
    A: Any


class Visitor(Protocol):
    """Whoever wants the layers of one pass."""

    def add(self, layer: LayerCapture) -> None:
        """Called with every wanted layer as soon as it ends, so that its attention weights need not outlive it."""
        ...


@dataclass
class _Pass:
    """One pass under way: who watches, how many layers are done, and what was seen of the one under way.

    `own`: attention is that of the model's own kernel, see `OpenModel.run`.
    """

    visitor: Visitor
    own: bool = True
    done: int = 0
    seen: dict[str, Any] = field(default_factory=dict)


class Observer:
    """Hooks at the sites, for as long as `installed` is open; the model is not changed otherwise.

    Several threads may put batches through the model at the same time: each opens `watching` for its own, and a pass
    that nobody watches goes by unseen. `wanted` are numbers of layers, counted from 1.
    """

    def __init__(self, sites: Sequence[Site], *, wanted: Collection[int], subject: str) -> None:
        self._sites = sites
        self._wanted = wanted
        self._subject = subject
        self._local = threading.local()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install the hooks, on a module that several layers share once; remove them at the end, come what may."""
        known = set()
        with ExitStack() as hooks:
            for site in self._sites:
                parts: tuple[tuple[Any, bool, Callable[[_Pass, Any], None]], ...] = (
                    (site.block, True, _open),
                    (site.projections.value.module, True, partial(_keep, "U")),
                    (site.projections.output.module, False, partial(_keep, "projected")),
                    (site.branch, False, partial(_keep, "Z")),
                    (site.residual, True, _keep_residual),
                    (site.block, False, self._close),
                )
                for role, (module, inwards, note) in enumerate(parts):
                    if (id(module), role) not in known:
                        known.add((id(module), role))
                        hooks.enter_context(self._hooked(module, note, inwards=inwards))
            yield

    @contextmanager
    def watching(self, visitor: Visitor, *, own: bool = True) -> Iterator[None]:
        """Hand the layers of the one pass that this thread makes in the context to the visitor."""
        current = self._local.current = _Pass(visitor, own)
        try:
            with attention_tap(self._attend):
                yield
        finally:
            self._local.current = None
        if current.done != len(self._sites):
            raise hidden(
                self._subject,
                "its layers",
                f"a first pass went through {len(self._sites)} of them and a later one through {current.done}",
            )

    def _hooked(self, module: Any, note: Callable[[_Pass, Any], None], *, inwards: bool) -> Any:
        """A hook that notes the input or the output of a module, if this thread's pass is watched."""

        def tell(values: Any) -> None:
            if (current := getattr(self._local, "current", None)) is not None:
                note(current, first_tensor(values))

        if inwards:
            return module.register_forward_pre_hook(
                lambda module, args, kwargs: tell((*args, kwargs.get("hidden_states"))), with_kwargs=True
            )
        return module.register_forward_hook(lambda module, args, output: tell(output))

    def _attend(self, weights: Callable[[], Any]) -> Any:
        current: _Pass = self._local.current
        if not current.seen or current.done + 1 not in self._wanted:
            return None
        current.seen["A"] = weights()
        return None if current.own else current.seen["A"]

    def _close(self, current: _Pass, X: Any) -> None:
        current.done += 1
        seen, current.seen = current.seen, {}
        if current.done in self._wanted:
            site = self._sites[current.done - 1]
            current.visitor.add(LayerCapture(number=current.done, site=site, X=X, **seen))


def _open(current: _Pass, H: Any) -> None:
    current.seen = {"H": H}


def _keep(letter: str, current: _Pass, tensor: Any) -> None:
    current.seen[letter] = tensor


def _keep_residual(current: _Pass, Y: Any) -> None:
    if "Z" in current.seen:  # before the branch ends, the same module may serve something else
        current.seen.setdefault("Y", Y)


# -- what is handed out -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextBatch:
    """Texts of one batch: `positions` in the caller's list, `mask` of their tokens, `pooled` of the pooled tokens.

    Both masks are (texts × n), padding on the right; they differ where a model's pooling leaves out its prompt.
    `truncated` counts the tokens that were cut off each text.
    """

    positions: NDArray[np.int64]
    mask: NDArray[np.bool_]
    pooled: NDArray[np.bool_]
    truncated: NDArray[np.int32]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens that attend to each other, per text."""
        return np.asarray(self.mask.sum(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class TextLayer:
    """One layer of one text, as numpy: H, U, Z, Y, X (n × d) and A (heads × n × n); see `LayerCapture`."""

    number: int
    site: Site
    H: NDArray[Any]
    U: NDArray[Any]
    Z: NDArray[Any]
    Y: NDArray[Any]
    X: NDArray[Any]
    A: NDArray[Any]


@dataclass(frozen=True)
class CapturedText:
    """One text: its position in the caller's list, which of its tokens are pooled, and its layers."""

    position: int
    pooled: NDArray[np.bool_]
    layers: tuple[TextLayer, ...]


@dataclass(frozen=True)
class CapturedBatch:
    """Some texts with the layers that were asked for, as the model's own padded tensors; `texts` cuts out each text."""

    batch: TextBatch
    layers: tuple[LayerCapture, ...]

    def texts(self) -> Iterator[CapturedText]:
        """Each text by itself, without padding."""
        for row, (position, n) in enumerate(zip(self.batch.positions, self.batch.lengths, strict=True)):
            layers = tuple(_cut(layer, row, int(n)) for layer in self.layers)
            yield CapturedText(int(position), self.batch.pooled[row, :n], layers)


def _cut(layer: LayerCapture, row: int, n: int) -> TextLayer:
    states = {letter: as_numpy(getattr(layer, letter)[row, :n]) for letter in "HUZYX"}
    return TextLayer(number=layer.number, site=layer.site, A=weights_to_numpy(layer.A[row, :, :n, :n]), **states)


def weights_to_numpy(weights: Any) -> NDArray[Any]:
    """Attention weights as numpy, in float32 at least: sums over many tokens need it."""
    import torch

    return as_numpy(weights.to(torch.promote_types(weights.dtype, torch.float32)))


def token_rows(tensor: Any, mask: NDArray[np.bool_]) -> NDArray[Any]:
    """The marked tokens of a padded batch (texts × n × d) as numpy, text after text (tokens × d)."""
    import torch

    rows = tensor.flatten(0, 1)
    if not mask.all():  # by their places: several times as fast as by the mask itself
        rows = rows.index_select(0, torch.from_numpy(np.flatnonzero(mask)).to(tensor.device))
    return as_numpy(rows)


# -- the model --------------------------------------------------------------------------------------------------------


V = TypeVar("V", bound=Visitor)
J = TypeVar("J")
P = TypeVar("P")


@dataclass(frozen=True)
class Pass(Generic[V]):
    """A finished batch: its texts, who saw its layers, and the pooled tokens' final vectors, text after text."""

    texts: TextBatch
    visitor: V
    output: NDArray[Any]


class OpenModel:
    """A transformer whose layers can be watched.

    `sites` says where the parts of each layer are; `final_norm`, whether the last layer's output is changed before it
    is pooled.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        encoder = as_encoder(model, **options)
        self._models = attention_of(encoder)
        self.encoder = planner_of(encoder)
        self.card = encoder.card
        self._model = self._models[0]
        self.subject = f"{encoder.card.name} ({type(self._model).__name__})"
        if any(module._compiled_call_impl is not None for module in self._model.modules()):
            raise ModelError(
                f"{self.subject}: received a model that was compiled in place, whose layers cannot be watched; allowed "
                f"is the model as it was loaded. Load it again, and compile it afterwards."
            )
        passed = trace(encoder)
        self.sites = find_sites(passed, self._model, subject=self.subject)
        self.final_norm = has_final_norm(passed, self.sites)

    def run(
        self,
        texts: Sequence[str],
        visitor: Callable[[TextBatch], V],
        *,
        layers: Sequence[int] | None = None,
        parallel: bool = False,
        own: bool = True,
        progress: Progress | None = None,
    ) -> Iterator[Pass[V]]:
        """All batches through the model; the visitor of a batch is given every wanted layer as it ends.

        `parallel` takes several batches at a time on a CPU, one a core, which is faster, holds as many in memory, and
        leaves the hooks at the model until the last is yielded; otherwise it is as before whenever a batch is yielded.
        Without `own` the model goes on with what the weights that are handed out give, instead of its own kernel's
        attention, which computes them once more: the same but for rounding, as the first batch is checked by it.
        """
        plan = replace(self.encoder.plan(check_texts(texts)), room=None)  # watched passes are padded
        observer = Observer(self.sites, wanted=self._wanted(layers), subject=self.subject)

        def one(forward: Forward, job: tuple[int, tuple[NDArray[np.int64], Batch]]) -> Pass[V]:
            k, (at, batch) = job
            texts = TextBatch(at, batch.mask, batch.keep, plan.tokens.cut[at])
            seen = visitor(texts)
            # The first batch alone, so that what is computed does not depend on the number of cores.
            watcher, kernel = (_Checked(seen, batch, self.subject), True) if k == 0 else (seen, own)
            with observer.watching(watcher, own=kernel):
                return Pass(texts, seen, forward(batch)[self.card.last])

        jobs = enumerate(zip(plan.groups(), plan, strict=True))
        together = parallel and len(self._models) == 1
        for done in self._together(observer, one, jobs, len(plan)) if together else self._apart(observer, one, jobs):
            yield done
            if progress is not None:
                progress(len(done.texts.positions), int(done.texts.mask.sum()))

    def _together(
        self, observer: Observer, one: Callable[[Forward, J], P], jobs: Iterable[J], count: int
    ) -> Iterator[P]:
        """As many at a time as the backend has workers for; what makes them faster is prepared once for all."""
        with observer.installed(), self.encoder.workers([self.card.last], count) as forwards:
            each = {forward: partial(one, forward) for forward in set(forwards)}
            for _, done in in_order(jobs, [each[forward] for forward in forwards]):
                yield done

    def _apart(self, observer: Observer, one: Callable[[Forward, J], P], jobs: Iterable[J]) -> Iterator[P]:
        """One after the other, and between two the model is as it was."""
        for job in jobs:
            with observer.installed(), self.encoder.workers([self.card.last]) as forwards:
                done = one(forwards[0], job)
            yield done

    def _wanted(self, layers: Sequence[int] | None) -> frozenset[int]:
        depth = len(self.sites)
        if layers is None:
            return frozenset(range(1, depth + 1))
        numbers = frozenset(check_layers(layers, depth, name=self.card.name).values())
        if 0 in numbers:
            raise InputError(
                "layers: received layer 0, the embedding output, which has no parts; the first layer is 1."
            )
        return numbers


class _Checked:
    """A visitor before whose eyes every layer is checked, on the longest and the most padded text of the batch.

    Refused is a layer whose pieces do not give what the model computed.
    """

    def __init__(self, visitor: Visitor, batch: Batch, subject: str) -> None:
        self._visitor = visitor
        self._texts = [0] if batch.mask.all() else [0, len(batch.mask) - 1]
        self._mask = batch.mask[self._texts]
        self._subject = subject
        self._before: LayerCapture | None = None

    def add(self, layer: LayerCapture) -> None:
        import torch

        mask = torch.from_numpy(self._mask).to(layer.H.device)
        pieces = ("H", "U", "projected", "Z", "Y", "X", "A")
        few = replace(layer, **{piece: getattr(layer, piece)[self._texts] for piece in pieces})
        self._check(few, self._before, mask, f"layer {layer.number}")
        self._before = few
        self._visitor.add(layer)

    def _check(self, layer: LayerCapture, before: LayerCapture | None, mask: Any, piece: str) -> None:
        """By its own sums, and beside the layer before it, if that was captured."""
        subject = self._subject
        if before is not None and before.number == layer.number - 1 and not equal(before.X, layer.H, mask):
            raise hidden(subject, f"the step into {piece}", "the output of the layer before is not its input")
        check_weights(layer.A, mask, subject=subject, number=layer.number)
        if not close(recomposed(layer.A, layer.U, layer.site.projections, mask), layer.projected, mask):
            why = "A, U, W_V and W_O do not give what its output projection gave"
            raise hidden(subject, f"the attention branch of {piece}", why)
        if not is_sum(layer.Y, layer.H, layer.Z, mask):
            raise hidden(subject, f"the residual sum of {piece}", "H + Z is not what its next module received")


# -- one call ---------------------------------------------------------------------------------------------------------


def capture(
    model: Any,
    texts: Sequence[str],
    *,
    layers: Sequence[int] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Iterator[CapturedBatch]:
    """What every layer of a transformer computes for the texts: H, U, Z, Y, X, attention weights and projections.

    The pieces are found by watching one short pass, and what they must add up to is checked on the first batch; a model
    that hides one is refused with its name.

    Parameters
    ----------
    model
        A transformer as `as_encoder` takes it.
    texts
        A list of texts; tokens, prompt and truncation are those of `encode`.
    layers
        Which to keep: 1 is the first, negative from the end; None: all.
    progress
        Called after every batch with the number of texts and tokens.
    **options
        The fields of `EncoderOptions`.

    Yields
    ------
    CapturedBatch
        Longest texts first, at most `batch_tokens` padded tokens at a time. Between two batches the model is as it was
        before.

    """
    opened = OpenModel(model, **options)
    for done in opened.run(texts, lambda batch: _Kept(), layers=layers, progress=progress):
        yield CapturedBatch(done.texts, tuple(done.visitor.layers))


class _Kept:
    """Keeps the layers of one batch."""

    def __init__(self) -> None:
        self.layers: list[LayerCapture] = []

    def add(self, layer: LayerCapture) -> None:
        self.layers.append(layer)


# -- what attention hands on in place of hidden states: its values, and its branch, over a range of layers -------------
#
# Hooks at the sites add up what passes while batches run; the model goes on with its own numbers.

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
    planner, number = planner_of(encoder), encoder.card.last
    with _gathering(sites[first:last], part, name=encoder.card.name) as sums, planner.workers([number]) as workers:

        def run(batch: Batch) -> dict[int, NDArray[Any]]:
            sums.clear()
            workers[0](batch)
            return {number: token_rows(sums[0] / (last - first), batch.keep)}

        matrix = run_batches(plan, [run], progress=progress)[number]
    about = {"model": encoder.card.to_dict(), "options": options_of(encoder).content(), "layer": -1}
    about |= {"part": part, "layers": [first + 1, last]}
    return token_clouds(texts, plan.tokens, matrix, about, skip=plan.skip)


def _sites(encoder: TokenEncoder) -> Sequence[Site]:
    """Where the parts of the layers are; found once for a model, since that takes a pass."""
    model = attention_of(encoder)[0]
    if model not in _SITES:
        _SITES[model] = OpenModel(encoder).sites
    return _SITES[model]


@contextmanager
def _gathering(sites: Sequence[Site], part: Part, *, name: str) -> Iterator[list[Any]]:
    """While open, sum the outputs of these layers in the last batch into the only entry of the list."""
    sums: list[Any] = []

    def add(columns: list[int] | None, module: Any, args: Any, output: Any) -> None:
        output = output if columns is None else output[..., columns]
        if not sums:
            sums.append(output.float())
        elif sums[0].shape != output.shape:
            raise ModelError(
                f"{name}: its layers have values of different sizes ({sums[0].shape[-1]} and {output.shape[-1]}), of "
                f"which no mean can be taken. Ask for layers of one size: low and high."
            )
        else:
            sums[0] = sums[0] + output.float()

    with ExitStack() as hooks:
        for site in sites:
            projections = site.projections
            taken = projections.value if part == "values" else projections.output
            columns = list(projections.columns) if part == "values" and projections.merged else None
            hooks.enter_context(taken.module.register_forward_hook(partial(add, columns)))
        yield sums
