"""A small page with everything on it, made by hand; and texts that want to be more than text."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from poolscope import TokenClouds, socm
from poolscope.encoders.vocabulary import Vocabulary
from poolscope.intervals import Interval
from poolscope.report import PairExplorer, ReportSection, ReportTable, pair_explorer, render_page
from poolscope.verdicts import Verdict

LONG = "x" * 1_000_000
HOSTILE = (
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    "<!-- <script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\"'`><svg onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "<a href='https://evil.test/'>a link</a>",
    "{{ 7 * 7 }} {% raw %} ${7 * 7} &lt;b&gt;",
    "nothing \x00 and bell \x07 and \x7f",
    "\u202ethis is turned\u2066 and never turned back",
    "line \u2028 and paragraph \u2029",
    "\U0001f600 שלום العربية",
    '=HYPERLINK("https://evil.test/")',
    LONG,
)
HALF = "half a character \ud800"  # cannot be in a cloud, because Arrow refuses it; can be in a table

WORDS = ("[CLS]", "hidden", "##ing", "<script>", "mean", "cloud", "\x00", "token")


def hostile_clouds(texts: int = 24, dimension: int = 6) -> tuple[TokenClouds, Vocabulary]:
    """Clouds whose texts, ids and names of tokens are hostile."""
    random = np.random.default_rng(3)
    arrays = [random.standard_normal((n, dimension)) * 0.8 + 1 for n in random.integers(1, 9, texts)]
    clouds = TokenClouds.from_arrays(
        arrays,
        texts=[f"Hidden clouds mean token {k}. {HOSTILE[k % len(HOSTILE)]}" for k in range(texts)],
        ids=[f"{k} {HOSTILE[k % 7]}" for k in range(texts)],
        token_ids=[random.integers(0, len(WORDS), len(array)).astype(np.int32) for array in arrays],
    )
    return clouds, Vocabulary.of_words(WORDS)


def curve(name: str = "a model") -> go.Figure:
    """A figure of two traces with a title and names that hold markup."""
    figure = go.Figure(layout={"title": {"text": f"<b>{name}</b>"}, "width": 700, "height": 420})
    figure.add_scatter(x=np.arange(5), y=np.arange(5) / 3, name=f"<script>{name}</script>", line={"color": "#0072B2"})
    figure.add_bar(x=["=1+1", "<b>bold</b>", "-2", "@x", "plain"], y=[1, -2, 3, 4, 5.5], name="bars")
    return figure


def panels() -> go.Figure:
    """Four panels, two beside two, each with its title."""
    from plotly.subplots import make_subplots

    figure = make_subplots(2, 2, subplot_titles=["one", "two", "three", "four"])
    for k in range(4):
        figure.add_scatter(x=[0, 1], y=[k, k + 1], row=k // 2 + 1, col=k % 2 + 1, showlegend=False)
    return figure.update_layout(width=900, height=700)


def interval(low: float, high: float) -> Interval:
    return Interval(low, high, 0.95, "the population of texts", "bootstrap over texts")


def sections() -> list[ReportSection]:
    """Three verdicts and one section without, hostile wherever a text can be."""
    rows = [(k * 1.5 - 3, None if k == 4 else 7 * k % 15, bool(k % 2), text) for k, text in enumerate((*HOSTILE, HALF))]
    worst = ReportTable("Worst pairs", ["score", "tokens", "found", "text <i>"], rows, searchable=True)
    many = ReportTable("Many rows", ["row", "square"], [(k, k * k) for k in range(40)])
    found = Verdict("repair", HOSTILE[0], 0.1234, interval(0.1, 0.15), 0.01, (HOSTILE[1], HOSTILE[8]))
    return [
        ReportSection("first", HOSTILE[3], "Is it hidden?", found, [("A curve", curve())], [worst], [HOSTILE[4]]),
        ReportSection(
            "second",
            "Two",
            HOSTILE[9],
            Verdict("watch", "Perhaps.", 12),
            [("Four panels", panels())],
            [many],
            explained_by="scores.md#limits",
        ),
        ReportSection("third", "Three", "Fine?", Verdict("ok", "Yes."), link="https://example.org/page"),
        ReportSection("data", "Four", "What else?", notes=["Nothing else."], explained_by="audit.md"),
    ]


def explorer(**options: object) -> PairExplorer:
    clouds, vocabulary = hostile_clouds()
    sizes = {"worst": 10, "nearest": 10, "random": 20, **options}
    return pair_explorer(clouds, socm(clouds), vocabulary=vocabulary, section="first", **sizes)


def page() -> str:
    return render_page(HOSTILE[1], HOSTILE[4], sections(), explorer=explorer(), provenance={"note": HOSTILE[0]})
