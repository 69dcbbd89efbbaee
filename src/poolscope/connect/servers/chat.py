"""One answer of a language model behind an OpenAI-compatible server, such as llama.cpp or vLLM serve."""

from __future__ import annotations

from poolscope.connect.servers.endpoint import Endpoint, shown
from poolscope.connect.servers.http import EndpointError, post

PATH = "/chat/completions"


def answer(url: str, model: str, prompt: str) -> str:
    """What the model answers to a prompt, at temperature 0; the address goes up to /v1."""
    place = Endpoint(url, model=model)
    key = place.key()
    content = post(
        url.rstrip("/").removesuffix(PATH) + PATH,
        {"model": model, "temperature": 0, "messages": [{"role": "user", "content": prompt}]},
        headers={} if key is None else {"Authorization": f"Bearer {key}"},
        shown=shown(url),
        timeout=place.timeout,
        retries=place.retries,
        pause=place.pause,
        key_variable=place.key_variable,
    )
    try:
        return str(content["choices"][0]["message"]["content"]).strip()
    except (KeyError, IndexError, TypeError):
        raise EndpointError(f"{shown(url)}: the answer holds no message. Check the address.") from None
