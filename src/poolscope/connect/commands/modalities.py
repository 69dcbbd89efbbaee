"""`poolscope lab modalities`: texts beside images in one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import argument, option, to_figure
from poolscope.show.screen import Screen, digits


def modalities(
    model: Annotated[str, argument("MODEL", "A model of the CLIP family: hub name or folder.")],
    table: Annotated[str, argument("TABLE", "Texts and files of images, one pair a row.")],
    text_column: Annotated[str, option("NAME", "Column of the texts.")] = "text",
    image_column: Annotated[str, option("NAME", "Column of the images.")] = "image",
    limit: Annotated[int, option("N", "At most so many pairs, from the first on.", min=3)] = 500,
    seed: arguments.Seed = 0,
    details: arguments.Details = False,
    json: arguments.Json = None,
    figure: Annotated[Path | None, to_figure("Draw texts and images: .html, .png, .svg.")] = None,
) -> None:
    """How far apart are texts and images in a model that reads both?

    Example: poolscope lab modalities openai/clip-vit-base-patch32 captions.csv

    You see the gap between both, SOCM within and across them, and how many texts find their image: with the gap,
    without it, and by all tokens and patches.
    """
    from poolscope.connect.modalities import read_captioned

    texts, images = read_captioned(table, text_column=text_column, image_column=image_column)
    result = poolscope.modalities(model, texts[:limit], images[:limit], seed=seed)
    screen = Screen(json, details=details)
    screen.print_in_words(result)
    rows = [
        (row.pairs, digits(row.socm.value, 4), digits(row.d_mu, 4), digits(row.d_sigma, 4), digits(row.cosine.value, 3))
        for row in result.distances
    ]
    screen.print_rows(("pairs", "SOCM", "d_μ", "d_Σ", "cosine"), rows, words=1)
    screen.put_result(result, json=json, figure=figure)
