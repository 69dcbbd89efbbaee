"""The texts that are sent to a runtime: few, and chosen so that causes can be told apart.

Short and long texts tell truncation and padding; capitals, line breaks and blanks at the ends tell changed letters;
other scripts tell another tokenizer; the same text with and without a prompt tells who puts one before it.
"""

from __future__ import annotations

from collections.abc import Sequence

SHORT = (
    "bread",
    "Is it open on Sunday?",
    "The ferry leaves at nine.",
    "She paid the invoice twice by mistake.",
    "A sparrow built its nest in the letter box.",
    "Restart the router before you call the helpdesk.",
    "In 1987 the mill burned down and was never rebuilt.",
    "for (int i = 0; i < n; ++i) total += price[i] * 0.5;",
    "  Blanks stand before and after this sentence.  ",
    "First line of a note\nsecond line of the same note\n\nand a last one",
    "CAPITALS AND small letters Mixed In One Text",
    "Crème brûlée, naïve façade, Ångström, żółw, Größe",
    "東京の図書館は月曜日に閉まります。",
    "Библиотека закрыта по понедельникам.",
    "المكتبة مغلقة يوم الاثنين",
    "The launch went well 🚀🚀 and nobody slept 😴",
    "query: who repairs old clocks",
    "who repairs old clocks",
)

_SENTENCES = (
    "The archive keeps letters that nobody has read since the harbour was moved.",
    "Water rises slowly in the lower field after three days of rain.",
    "A good contract names the day on which each part must be delivered.",
    "The nurse compared both charts and found that one had been copied wrongly.",
    "Copper conducts better than iron, yet the old bridge is made of iron.",
    "Every spring the council argues about the trees along the main road.",
    "The recipe asks for two eggs, a spoon of salt and a very hot oven.",
    "Her telescope shows four moons on a clear night in winter.",
    "Trains from the north are late whenever the wind comes from the sea.",
    "The program crashes if the list is empty and nobody has set a limit.",
    "In the museum a small label explains why the statue has no head.",
    "They measured the temperature of the soil at dawn and again at noon.",
    "A judge must explain her ruling in words that both sides understand.",
    "The orchestra tuned for ten minutes while the hall was still dark.",
    "Most of the bees survived, although the hive had been opened too early.",
    "Interest is paid at the end of each quarter, never in advance.",
    "The map was drawn before the river changed its course.",
)
_LONG = (4, 8, 16, 32, 60)


def long_texts() -> list[str]:
    """Texts of about 50 to 900 tokens, each with a beginning of its own."""
    count = len(_SENTENCES)
    return [" ".join(_SENTENCES[(5 * k + n) % count] for n in range(size)) for k, size in enumerate(_LONG)]


def probe_texts(prompts: Sequence[str] = ()) -> list[str]:
    """The texts, long ones between short ones; `prompts` (those that a model declares) stand before one of them too.

    >>> texts = probe_texts(["passage: "])
    >>> len(texts) == len(set(texts)), "passage: who repairs old clocks" in texts
    (True, True)
    """
    prompted = [f"{prompt}who repairs old clocks" for prompt in prompts[:2]]
    short = list(dict.fromkeys([*SHORT, *prompted]))
    longer = long_texts()
    step = len(short) // len(longer)
    mixed: list[str] = []
    for k, text in enumerate(short):
        mixed.append(text)
        if k % step == step - 1 and longer:
            mixed.append(longer.pop(0))
    return [*mixed, *longer]
