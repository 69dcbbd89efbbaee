"""Watching a pass at the sites of its layers: each layer's quantities are handed on when the layer ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from poolscope.capture.sites import Site, check_weights, close, equal, hidden, is_sum, recomposed
from poolscope.capture.trace import attention_tap, first_tensor


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
    """One pass under way: who watches, how many layers are done, and what was seen of the one under way."""

    visitor: Visitor
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
        """Install the hooks; remove them at the end, come what may."""
        handles: list[Any] = []
        try:
            for register, hook in self._hooks():
                handles.append(register(hook))
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def watching(self, visitor: Visitor) -> Iterator[None]:
        """Hand the layers of the one pass that this thread makes in the context to the visitor."""
        current = self._local.current = _Pass(visitor)
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

    def _hooks(self) -> Iterator[tuple[Callable[[Any], Any], Any]]:
        """How to register each hook; a module that several layers share is hooked once."""
        known = set()
        for site in self._sites:
            parts = (
                (site.block, self._inwards(_open)),
                (site.projections.value.module, self._inwards(partial(_keep, "U"))),
                (site.projections.output.module, self._outwards(partial(_keep, "projected"))),
                (site.branch, self._outwards(partial(_keep, "Z"))),
                (site.residual, self._inwards(_keep_residual)),
                (site.block, self._outwards(self._close)),
            )
            for role, (module, (inwards, hook)) in enumerate(parts):
                if (id(module), role) not in known:
                    known.add((id(module), role))
                    before = partial(module.register_forward_pre_hook, with_kwargs=True)
                    yield before if inwards else module.register_forward_hook, hook

    def _inwards(self, note: Callable[[_Pass, Any], None]) -> tuple[bool, Any]:
        """A hook that notes the input of a module, if this thread's pass is watched."""

        def hook(module: Any, args: Any, kwargs: Any) -> None:
            if (current := getattr(self._local, "current", None)) is not None:
                note(current, first_tensor((*args, kwargs.get("hidden_states"))))

        return True, hook

    def _outwards(self, note: Callable[[_Pass, Any], None]) -> tuple[bool, Any]:
        """A hook that notes the output of a module, if this thread's pass is watched."""

        def hook(module: Any, args: Any, output: Any) -> None:
            if (current := getattr(self._local, "current", None)) is not None:
                note(current, first_tensor(output))

        return False, hook

    def _attend(self, weights: Callable[[], Any]) -> None:
        current: _Pass = self._local.current
        if current.seen and current.done + 1 in self._wanted:
            current.seen["A"] = weights()

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
