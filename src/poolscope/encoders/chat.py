"""Chat templates: a model that declares one reads each text as the message of a user, its prompt as that of the system.

The rules are those of sentence-transformers 6: a text too long is cut, and what the template puts behind a text is
written over its last tokens again, since a pooling by the last token reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from typing import Any

from poolscope.encoders.tokens import Tokens
from poolscope.errors import ModelError

# What a folder may hand to its template, each a plain value.
ARGUMENTS = ("add_generation_prompt", "continue_final_message", "enable_thinking")
_FORMATS = ("flat", "structured")
_RESTORE = "restore_suffix"


@dataclass(frozen=True)
class ChatTemplate:
    """How messages are handed to the template of the tokenizer: `structured` contents are lists of parts.

    `restored`: is what the template puts behind a text kept where the text is cut?
    """

    structured: bool = False
    restored: bool = True
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def messages(self, prompt: str, text: str) -> list[dict[str, Any]]:
        """The conversation of one text.

        >>> ChatTemplate().messages("be brief", "a text")
        [{'role': 'system', 'content': 'be brief'}, {'role': 'user', 'content': 'a text'}]
        """
        said = [("system", prompt)] if prompt else []
        return [
            {"role": role, "content": [{"type": "text", "text": words}] if self.structured else words}
            for role, words in [*said, ("user", text)]
        ]


def declared_template(modalities: Any, processing: Any, *, name: str) -> ChatTemplate | None:
    """What a Transformer module declares (`modality_config`, `processing_kwargs`); None where it reads plain texts."""
    if not isinstance(modalities, Mapping) or "message" not in modalities:
        return None
    kind = dict(modalities["message"]).get("format")
    given = dict(processing or {})
    arguments = dict(given.pop("chat_template", None) or {})
    restored = bool(arguments.pop(_RESTORE, True))
    odd = [key for key, value in given.items() if value]
    odd += [key for key, value in arguments.items() if key not in ARGUMENTS or not isinstance(value, bool)]
    if kind not in _FORMATS or odd:
        what = f"asks for {', '.join(map(str, odd))} beside it" if odd else f"does not say in which format ({kind!r})"
        raise ModelError(
            f"{name}: it wraps texts in a chat template and {what}; allowed: the format {' or '.join(_FORMATS)}, and "
            f"of its arguments {', '.join(ARGUMENTS)}. Pass a function from texts to token arrays."
        )
    return ChatTemplate(kind == "structured", restored, arguments)


class ChatTokenizer:
    """From texts to ids through the chat template of a tokenizer of transformers."""

    def __init__(self, tokenizer: Any, template: ChatTemplate, *, name: str) -> None:
        source = getattr(tokenizer, "chat_template", None)
        if not isinstance(source, str):
            raise ModelError(
                f"{name}: it declares that texts are wrapped in a chat template, and its tokenizer has "
                f"{'none' if source is None else 'several'}; needed: one. Put the files of its own tokenizer there."
            )
        if re.search(r"\btask\b", source):
            raise ModelError(
                f"{name}: its chat template asks for the task of a text, which poolscope does not tell it. Pass a "
                f"function from texts to token arrays."
            )
        self._tokenizer, self._template = tokenizer, template
        self._behind = cache(self._ending)

    def __call__(self, texts: Sequence[str], max_length: int | None) -> Tokens:
        """Without a prompt."""
        return self.prompted("", texts, max_length)

    def prompted(self, prompt: str, texts: Sequence[str], max_length: int | None) -> Tokens:
        """The ids of texts, with the prompt as the message of the system."""
        rows, lost = [], []
        for row in self._render([self._template.messages(prompt, text) for text in texts]):
            fits = max_length is None or len(row) < max_length
            rows.append(row if fits else self._cut(row, prompt, int(max_length or 0)))
            lost.append(len(row) - len(rows[-1]))
        return Tokens.join(rows, lost)

    def _render(self, conversations: list[Any]) -> list[list[int]]:
        made = self._tokenizer.apply_chat_template(
            conversations, tokenize=True, return_dict=True, **self._template.arguments
        )
        ids: list[list[int]] = made["input_ids"]
        return ids

    def _cut(self, row: list[int], prompt: str, longest: int) -> list[int]:
        left = getattr(self._tokenizer, "truncation_side", "right") == "left"
        kept = row[-longest:] if left else row[:longest]
        ending = self._behind(prompt)[-longest:] if self._template.restored else ()
        return [*kept[: longest - len(ending)], *ending]

    def _ending(self, prompt: str) -> tuple[int, ...]:
        """What two conversations of different texts have in common at their end."""
        one, other = self._render([self._template.messages(prompt, text) for text in ("0", "1 2 3 4")])
        shared = list(takewhile(lambda pair: pair[0] == pair[1], zip(reversed(one), reversed(other), strict=False)))
        return tuple(one[len(one) - len(shared) :]) if len(shared) < min(len(one), len(other)) else ()
