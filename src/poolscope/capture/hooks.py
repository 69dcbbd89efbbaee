"""Watching a pass at the sites of its layers: each layer's quantities are handed on when the layer ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from poolscope.capture.attention import attention_tap
from poolscope.capture.checks import check_weights, close, equal, hidden, is_sum, recomposed
from poolscope.capture.sites import Site
from poolscope.capture.trace import first_tensor


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


class Observer:
    """Hooks at the sites, for as long as `watching` is open; the model is not changed otherwise.

    `visit` is called with every wanted layer (numbers counted from 1) as soon as it ends, so that its attention weights
    need not outlive it.
    """

    def __init__(
        self, sites: Sequence[Site], visit: Callable[[LayerCapture], None], *, wanted: Collection[int], subject: str
    ) -> None:
        self._sites = sites
        self._visit = visit
        self._wanted = wanted
        self._subject = subject
        self._done = 0
        self._seen: dict[str, Any] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Install the hooks; remove them at the end, come what may."""
        handles: list[Any] = []
        self._done, self._seen = 0, {}
        try:
            for register, hook in self._hooks():
                handles.append(register(hook))
            with attention_tap(self._attend):
                yield
            if self._done != len(self._sites):
                raise hidden(
                    self._subject,
                    "its layers",
                    f"a first pass went through {len(self._sites)} of them and a later one through {self._done}",
                )
        finally:
            for handle in handles:
                handle.remove()
            self._seen = {}

    def _hooks(self) -> Iterator[tuple[Callable[[Any], Any], Any]]:
        """How to register each hook; a module that several layers share is hooked once."""
        known = set()
        for site in self._sites:
            parts = (
                (site.block, self._open, "input"),
                (site.projections.value.module, self._input_of("U"), "input"),
                (site.projections.output.module, self._output_of("projected"), "output"),
                (site.branch, self._output_of("Z"), "output"),
                (site.residual, self._residual, "input"),
                (site.block, self._close, "output"),
            )
            for role, (module, hook, side) in enumerate(parts):
                if (id(module), role) not in known:
                    known.add((id(module), role))
                    inwards = partial(module.register_forward_pre_hook, with_kwargs=True)
                    yield inwards if side == "input" else module.register_forward_hook, hook

    def _input_of(self, letter: str) -> Any:
        def keep(module: Any, args: Any, kwargs: Any) -> None:
            self._seen[letter] = _input(args, kwargs)

        return keep

    def _output_of(self, letter: str) -> Any:
        def keep(module: Any, args: Any, output: Any) -> None:
            self._seen[letter] = first_tensor(output)

        return keep

    def _open(self, module: Any, args: Any, kwargs: Any) -> None:
        self._seen = {"H": _input(args, kwargs)}

    def _residual(self, module: Any, args: Any, kwargs: Any) -> None:
        if "Z" in self._seen:  # before the branch ends, the same module may serve something else
            self._seen.setdefault("Y", _input(args, kwargs))

    def _attend(self, weights: Callable[[], Any]) -> None:
        if self._seen and self._done + 1 in self._wanted:
            self._seen["A"] = weights()

    def _close(self, module: Any, args: Any, output: Any) -> None:
        self._done += 1
        seen, self._seen = self._seen, {}
        if self._done in self._wanted:
            site = self._sites[self._done - 1]
            self._visit(LayerCapture(number=self._done, site=site, X=first_tensor(output), **seen))


def _input(args: Any, kwargs: Any) -> Any:
    return first_tensor((*args, kwargs.get("hidden_states")))


def check_layer(layer: LayerCapture, before: LayerCapture | None, mask: Any, *, subject: str) -> None:
    """Refuse a layer whose pieces do not give what the model computed; `before` is the layer before it, if captured."""
    piece = f"layer {layer.number}"
    if before is not None and before.number == layer.number - 1 and not equal(before.X, layer.H, mask):
        raise hidden(subject, f"the step into {piece}", "the output of the layer before is not its input")
    check_weights(layer.A, mask, subject=subject, number=layer.number)
    if not close(recomposed(layer.A, layer.U, layer.site.projections, mask), layer.projected, mask):
        raise hidden(
            subject, f"the attention branch of {piece}", "A, U, W_V and W_O do not give what its output projection gave"
        )
    if not is_sum(layer.Y, layer.H, layer.Z, mask):
        raise hidden(subject, f"the residual sum of {piece}", "H + Z is not what its next module received")
