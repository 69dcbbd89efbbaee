"""The ten questions, in one table. A new question is one row here, and one function that answers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from poolscope.auditing.averaging import answer_averaging
from poolscope.auditing.decision import answer_decision
from poolscope.auditing.length import answer_long, answer_position, answer_short
from poolscope.auditing.pooling import answer_pooling
from poolscope.auditing.result import Answer, Finding
from poolscope.auditing.subject import Subject
from poolscope.auditing.truncation import answer_truncation
from poolscope.auditing.vectors import answer_cone, answer_hubs, answer_scores


@dataclass(frozen=True)
class Question:
    """One question: its key and title, its words, what answers it, the page that explains it, and what its number is.

    A function answers from the subject; the last question is answered from the subject and all earlier answers.
    """

    number: int
    key: str
    title: str
    words: str
    function: Callable[..., Finding]
    page: str
    number_name: str
    number_format: str | None = None
    from_answers: bool = False

    def ask(self, subject: Subject, earlier: Sequence[Answer]) -> Answer:
        """The answer for a subject."""
        found = self.function(subject, earlier) if self.from_answers else self.function(subject)
        return Answer(
            number=self.number,
            key=self.key,
            question=self.words,
            verdict=found.verdict,
            numbers=found.numbers,
            page=self.page,
            number_name=found.number_name or self.number_name,
            number_format=self.number_format,
            tables=found.tables,
            draw=found.draw,
            more=found.more,
            action=found.action if found.verdict.level != "ok" or self.from_answers else None,
            basis=found.basis,
        )


QUESTIONS: tuple[Question, ...] = (
    Question(
        1,
        "scores",
        "Unrelated pairs",
        "What does an unrelated pair score here?",
        answer_scores,
        "scores.md",
        "cut-off for unrelated pairs",
    ),
    Question(
        2,
        "cone",
        "One cone",
        "Is everything in one cone, and does removing the mean help on my data?",
        answer_cone,
        "scores.md#how-to-read-it",
        "mean cosine",
    ),
    Question(
        3,
        "pooling",
        "Pooling",
        "Did my runtime pool the way this model was trained?",
        answer_pooling,
        "audit.md#what-your-runtime-did-question-3",
        "cosine of your runtime's vectors with the model's pooling",
    ),
    Question(
        4,
        "truncation",
        "Cut off",
        "How much text was cut off, and which documents became twins because of it?",
        answer_truncation,
        "encoders.md#what-was-cut-off",
        "tokens cut off",
        ".1%",
    ),
    Question(
        5,
        "short",
        "Short texts",
        "Do short chunks win just because they are short?",
        answer_short,
        "length.md#who-wins-a-search-and-from-where",
        "short texts in answers, observed over expected",
    ),
    Question(
        6,
        "long",
        "Long texts",
        "Do long chunks all look alike; would a temperature or smaller chunks help?",
        answer_long,
        "length.md",
        "rise of the mean cosine per doubling of the length",
    ),
    Question(
        7,
        "position",
        "Position",
        "If the answer sits at the end of a chunk, is it still found?",
        answer_position,
        "length.md#who-wins-a-search-and-from-where",
        "loss from the start to the end",
    ),
    Question(
        8,
        "averaging",
        "Averaging",
        "Does averaging hide something that matters here? Show me the pairs.",
        answer_averaging,
        "socm.md",
        "SOCM among neighbours",
    ),
    Question(
        9,
        "hubs",
        "Hubs",
        "Which chunks come back for everything, which never?",
        answer_hubs,
        "hubs.md",
        "skewness of the times found",
    ),
    Question(
        10,
        "decision",
        "What first",
        "Keep, repair, re-chunk or change the model: what first, what does it cost, how sure?",
        answer_decision,
        "audit.md#what-comes-first-question-10",
        "answers that ask for something",
        ".0f",
        from_answers=True,
    ),
)
