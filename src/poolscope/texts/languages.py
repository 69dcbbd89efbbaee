"""The language of a text, told by its script and its function words; enough to say that two texts differ."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

_WORD = re.compile(r"[^\W\d_]+")
_MOST = 400  # letters and words that are read
_FEWEST = 3  # function words of one language, fewer of which tell nothing
_FUNCTION_WORDS = {
    "English": "the of and to in is that for it with as are this be by on not from or which you an if was has have",
    "German": "der die das und ist nicht ein eine zu mit von für auf dem den des im sich wird werden als auch wenn es",
    "French": "le la les des et est une dans pour que qui pas sur au aux par vous avec ce cette sont ou être du",
    "Spanish": "el la los las y es una que de en por para con no se del al su como más este son puede lo",
    "Italian": "il lo gli di è una che per non con del della si sono nel come più alla dei questo le anche può",
    "Portuguese": "o os as e é uma que de não em para com do da dos das se por ao na no como mais são você",
    "Dutch": "de het een en van is niet dat te op voor met zijn aan wordt ook als door er die worden naar bij",
    "Swedish": "och att det är en ett som på för inte av med den till om har kan de från eller men du",
}
_LANGUAGES = {name: frozenset(words.split()) for name, words in _FUNCTION_WORDS.items()}


def language_of(text: str) -> str:
    """The language of a text, or the script of its letters where that is not Latin; "" where it cannot be told.

    A language needs three function words and a lead over every other, so that names and code are no language.

    >>> language_of("The index is the list of all the texts."), language_of("Der Index ist die Liste der Texte.")
    ('English', 'German')
    >>> language_of("Указатель всех текстов"), language_of("x = foo(bar)")
    ('CYRILLIC', '')
    """
    letters = [letter for letter in text[: 10 * _MOST] if letter.isalpha()][:_MOST]
    scripts = Counter(unicodedata.name(letter, "").partition(" ")[0] for letter in letters)
    script = max(scripts, key=lambda name: scripts[name], default="")
    if script != "LATIN":
        return script
    words = _WORD.findall(text.lower())[:_MOST]
    counts = sorted(((sum(word in known for word in words), name) for name, known in _LANGUAGES.items()), reverse=True)
    (most, name), (second, _) = counts[:2]
    return name if most >= _FEWEST and most > second else ""
