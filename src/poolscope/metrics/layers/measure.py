"""The anatomy of the layers: where a model concentrates its token clouds, and what does it.

λ, r, C and the concentration ratio: Hara et al. 2026 (arXiv 2604.27398). σₐ and the high-frequency part: the work on
length collapse by Zhou et al. (ACL 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from threadpoolctl import threadpool_limits

from poolscope.capture import OpenModel
from poolscope.encoders import Progress
from poolscope.encoders.base import check_texts
from poolscope.errors import InputError
from poolscope.metrics.layers.result import LayersResult
from poolscope.metrics.layers.socm import StateClouds
from poolscope.metrics.layers.tally import BatchTally, LayerTally
from poolscope.results import provenance

# Texts whose pairs are compared in every state: 4,950 pairs a state.
SOCM_TEXTS = 100


def layers(
    model: Any,
    texts: Sequence[str],
    *,
    ids: Sequence[str] | None = None,
    socm_texts: int = SOCM_TEXTS,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> LayersResult:
    """λ, r, C, concentration ratio, cosine, σₐ, high-frequency growth and SOCM of every layer, from one pass.

    `model` is a transformer as `as_encoder` takes it (a name, a folder, a SentenceTransformer, or a pair (model,
    tokenizer)) and `options` are the fields of `EncoderOptions`. SOCM compares all pairs of at most `socm_texts` texts,
    drawn at random (`seed`); 0 leaves it out. Of a batch one layer is in memory at a time (on a CPU one batch a core is
    under way), and the clouds that SOCM needs lie in a temporary folder. With a prompt that the pooling leaves out, the
    states are the pooled tokens, and what happens inside a layer is measured over all tokens that attend to each other.
    """
    texts = check_texts(texts)
    names = tuple(str(k) for k in range(len(texts))) if ids is None else tuple(ids)
    if len(names) != len(texts) or len(set(names)) < len(names):
        raise InputError(f"ids: received {len(names)} for {len(texts)} texts; every text needs one of its own.")
    if socm_texts < 0 or socm_texts == 1:
        raise InputError(f"socm_texts: received {socm_texts}; allowed: 0 (no SOCM), or 2 and more texts to compare.")
    opened = OpenModel(model, **options)
    with ExitStack() as stack:
        clouds = None
        if socm_texts and len(texts) > 1:
            clouds = stack.enter_context(StateClouds(names, socm_texts, seed=seed))
        stack.enter_context(threadpool_limits(1, user_api="blas"))  # the batches share out the cores
        tally = LayerTally(opened, names, clouds)
        for done in opened.run(texts, partial(BatchTally, tally), parallel=True, progress=progress):
            if opened.final_norm:
                done.visitor.add_output(done.output)
        socm = None if clouds is None else clouds.socm(tally.states)
    origin = provenance(settings={"socm_texts": socm_texts, "seed": seed, **opened.encoder.options.content()})
    del origin["clouds"]
    return LayersResult(
        model=opened.card.name,
        ids=names,
        lengths=tally.lengths,
        truncated=tally.truncated,
        states=tally.states,
        values=tally.values(),
        norms=tally.sums.norms,
        value_norms=tally.sums.value_norms,
        pre_norm=tuple(site.pre_norm for site in opened.sites),
        post_norm=tuple(site.post_norm for site in opened.sites),
        socm=socm,
        provenance={**origin, "model": opened.card.to_dict()},
    )
