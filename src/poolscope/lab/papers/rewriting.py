"""Texts rewritten by a language model behind an OpenAI-compatible endpoint, such as llama.cpp or vLLM serve."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from poolscope.encoders.endpoint import Endpoint, shown
from poolscope.encoders.http import EndpointError, post
from poolscope.errors import InputError

_PATH = "/chat/completions"
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
        return cls(model, url.rstrip("/").removesuffix(_PATH))

    def rewrite(self, texts: Sequence[str], prompt: str) -> list[str]:
        """Each text as the model rewrites it; `{text}` in the prompt stands for it."""
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(lambda text: self._one(prompt.replace("{text}", text)), texts))

    def _one(self, prompt: str) -> str:
        place = Endpoint(self.url, model=self.model)
        key = place.key()
        answer = post(
            self.url + _PATH,
            {"model": self.model, "temperature": 0, "messages": [{"role": "user", "content": prompt}]},
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            shown=shown(self.url),
            timeout=place.timeout,
            retries=place.retries,
            pause=place.pause,
            key_variable=place.key_variable,
        )
        try:
            return str(answer["choices"][0]["message"]["content"]).strip()
        except (KeyError, IndexError, TypeError):
            raise EndpointError(f"{shown(self.url)}: the answer holds no message. Check the address.") from None
