"""The papers by name, and the function that runs one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from poolscope.encoders.base import EncoderOptions
from poolscope.encoders.gguf import models_folder
from poolscope.errors import InputError, did_you_mean, whole_number
from poolscope.lab.papers import length_collapse, norm_variance, socm
from poolscope.lab.papers.cell import Paper
from poolscope.lab.papers.rewriting import Rewriter
from poolscope.lab.papers.runner import PaperRun, run_paper
from poolscope.lab.papers.sources import Places

PAPERS: Mapping[str, Paper] = {module.PAPER.name: module.PAPER for module in (socm, length_collapse, norm_variance)}


def find_paper(name: str) -> Paper:
    """The paper of a name."""
    if name not in PAPERS:
        raise InputError(
            f"paper: received {name!r}; allowed: {', '.join(PAPERS)}. Name one of these.{did_you_mean(name, PAPERS)}"
        )
    return PAPERS[name]


def paper(
    name: str,
    output: str | os.PathLike[str],
    *,
    figures: Sequence[str] = (),
    tables: Sequence[str] = (),
    parts: Sequence[str] = (),
    models: Sequence[str] | Mapping[str, str | None] = (),
    texts: Mapping[str, str] | None = None,
    files: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    cache: bool = True,
    pictures: bool = False,
    say: Callable[[str], None] | None = None,
    rewriter: str | None = None,
    **options: Any,
) -> PaperRun:
    """Measure a paper as far as its models and texts can be reached: a folder for every figure and table.

    Parameters
    ----------
    name : str
        "socm", "length-collapse" or "norm-variance".
    output : path
        Folder of the results. Cells that it holds already are not measured again.
    figures, tables, parts : sequence of str
        Only these, by number ("4", "1a") or by name ("appendix-j"); all without any.
    models : sequence of str, or mapping from name to source
        Only these models of the paper, by its names; a source says where one is loaded from, and a name that the paper
        does not know is added to every figure and table.
    texts : mapping from data set to source
        Read a data set from a file, a folder or elsewhere.
    files : path, optional
        Folder in which copies of models and data sets are looked for, by default that of `make models`.
    limit : int, optional
        So many texts, pairs or queries of each data set, not as many as the paper.
    seed : int
        Of every draw.
    cache : bool
        Keep clouds for later calls.
    pictures : bool
        Draw SVG by a browser in place of pages.
    say : callable, optional
        Called with a line for every cell, with the time left.
    rewriter : str, optional
        A language model that shortens texts for figure 1b: MODEL@URL of an OpenAI-compatible endpoint.
    **options
        Of the encoder, the same for all models.

    Returns
    -------
    PaperRun
        One row a figure or table: cells, how many have numbers, how many printed numbers agree or differ.

    Examples
    --------
    >>> import tempfile
    >>> from poolscope import paper
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = paper("socm", folder, figures=["3"])
    >>> run
    PaperRun(paper socm, entries 1, measured 1)

    """
    chosen = find_paper(name)
    named = dict(models) if isinstance(models, Mapping) else dict.fromkeys(models)
    if odd := [each for pair in named.items() for each in pair if not isinstance(each, str | None)]:
        raise InputError(f"models: received {odd[0]!r}; allowed: names, and sources that are strings. Pass such ones.")
    known = {checkpoint.name for checkpoint in chosen.models}
    if unknown := [each for each, source in named.items() if source is None and each not in known]:
        raise InputError(
            f"models: received {unknown[0]!r}; the models of {name} are {', '.join(sorted(known))}. Name one of them, "
            f"or say where yours is: {unknown[0]}=SOURCE."
        )
    if strange := [each for each in texts or {} if each not in chosen.data]:
        raise InputError(
            f"texts: received {strange[0]!r}; the data sets are {', '.join(chosen.data)}. Name one of them."
        )
    places = Places(
        files=models_folder() if files is None else Path(files),
        models={each: source for each, source in named.items() if source is not None},
        texts=dict(texts or {}),
    )
    return run_paper(
        chosen,
        output,
        figures=figures,
        tables=tables,
        parts=parts,
        models=named,
        places=places,
        limit=None if limit is None else whole_number(limit, "limit", least=2),
        seed=whole_number(seed, "seed", least=0),
        options=EncoderOptions(**options),
        cache=cache,
        pictures=pictures,
        say=say,
        rewriter=None if rewriter is None else Rewriter.of(rewriter),
    )
