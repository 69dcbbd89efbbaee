"""Texts rewritten by a language model behind an OpenAI-compatible endpoint, such as llama.cpp or vLLM serve."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from poolscope.errors import InputError
from poolscope.extensions import service

_THREADS = 4


@dataclass(frozen=True)
class Rewriter:
    """A language model and where it is served: MODEL@URL, with the address up to /v1.

    >>> Rewriter.of("llama-3.1-8b-instruct@http://localhost:8000/v1")
    Rewriter(model='llama-3.1-8b-instruct', url='http://localhost:8000/v1')
    """

    model: str
    url: str

    @classmethod
    def of(cls, words: str) -> Rewriter:
        """The model and the address that an option names."""
        model, at, url = words.partition("@")
        if not (model and at and url.startswith(("http://", "https://"))):
            raise InputError(f"--rewriter {words} names no model and address. Write MODEL@http://localhost:8000/v1.")
        return cls(model, url)

    def rewrite(self, texts: Sequence[str], prompt: str) -> list[str]:
        """Each text as the model rewrites it; `{text}` in the prompt stands for it."""
        answer = service("answer of a language model")
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(lambda text: answer(self.url, self.model, prompt.replace("{text}", text)), texts))
