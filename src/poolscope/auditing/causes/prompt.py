"""Prompt: the model was trained with words before queries, and the queries lack them."""

from __future__ import annotations

from poolscope.auditing.cause import Cause, Symptom, Words
from poolscope.auditing.cures.encoding import PROMPT as OTHER_PROMPT
from poolscope.auditing.search import Search
from poolscope.encoders.base import EncoderOptions, resolve_prompt
from poolscope.encoders.capabilities import options_of
from poolscope.numbers.intervals import Estimate


def queries_without(search: Search) -> Symptom | None:
    """The share of queries that lack the prompt that the model declares for them: all or none.

    Another prompt may be meant so. None at all is a defect: the model then reads queries as it never did in training.
    """
    declared = resolve_prompt(search.encoder.card, EncoderOptions(role="query"))
    if not declared or not len(search):
        return None
    used = resolve_prompt(search.asking.card, options_of(search.asking))
    lacking = Estimate(float(used != declared), floor=0.0)
    values = {"prompt": declared.strip()[:24], "queries": len(search)}
    return Symptom(lacking, values=values, defect=not used)


PROMPT = Cause(
    "prompt",
    title="Prompt",
    page="causes.md#prompt",
    symptom=queries_without,
    cures=(OTHER_PROMPT,),
    stage="texts",
    words=Words(
        present="The model expects “{prompt}” before queries, and yours were encoded without it.",
        absent="Queries have the prompt that the model declares.",
        unlooked="The model declares no prompt for queries.",
        number="queries without their prompt",
    ),
)
