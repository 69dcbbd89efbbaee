"""A small page with everything on it, made by hand; and texts that want to be more than text."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from poolscope import TokenClouds, socm
from poolscope.encoders.tokens import Vocabulary
from poolscope.numbers.intervals import Interval
from poolscope.report import (
    PairExplorer,
    ReportAction,
    ReportColumn,
    ReportSection,
    ReportTable,
    pair_explorer,
    render_page,
)
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
    """Four panels, two beside two, each with its title, one in colour; titles of axes that are longer than panels, and
    names below the first one that fit only if they are turned."""
    from plotly.subplots import make_subplots

    coloured = 'two<br><sup><span style="color:#0072B2">— a curve</span></sup>'
    figure = make_subplots(2, 2, subplot_titles=["one", coloured, "three", "four"])
    for k in range(4):
        x = [0, 1] if k else [f"{low}–{low + 50} tokens" for low in range(0, 500, 50)]
        figure.add_scatter(x=x, y=[k, *range(1, len(x))], row=k // 2 + 1, col=k % 2 + 1, showlegend=False)
    figure.update_xaxes(title_text="what is measured here from the left end of the panel to its right end")
    figure.update_yaxes(title_text="what is measured here from the lower end of the panel to its upper end")
    return figure.update_layout(width=900, height=700)


def named_bars() -> go.Figure:
    """Bars whose names are far longer than the figure is wide."""
    names = ["a name in many words that goes on and on, far beyond every margin that a figure has", "y" * 300, "short"]
    return go.Figure(go.Bar(y=names, x=[1, 2, 3], orientation="h"), layout={"width": 860, "height": 300})


def pair_table() -> ReportTable:
    """The worst pairs of the hostile clouds; the last row is of a pair that no explorer has."""
    clouds, _ = hostile_clouds()
    worst = socm(clouds).worst(4)
    rows = [[pair.socm, pair.socm - 0.1, pair.socm + 0.1, "watch", pair.id_j, pair.id_i] for pair in worst]
    columns = ["socm", "socm_low", "socm_high", "level", "id_i", "id_j"]
    view = [
        ReportColumn("socm", "SOCM of <it>", low="socm_low", high="socm_high", level="level"),
        ReportColumn("id_i", "Text", below="id_j"),
    ]
    absent = [None, None, None, None, HOSTILE[0], HOSTILE[1]]
    return ReportTable("Pairs", columns, [*rows, absent], view=view, pair=("id_i", "id_j"))


def interval(low: float, high: float) -> Interval:
    return Interval(low, high, 0.95, "the population of texts", "bootstrap over texts")


def sections() -> list[ReportSection]:
    """Three verdicts and one section without, hostile wherever a text can be."""
    rows = [(k * 1.5 - 3, None if k == 4 else 7 * k % 15, bool(k % 2), text) for k, text in enumerate((*HOSTILE, HALF))]
    worst = ReportTable("Worst pairs", ["score", "tokens", "found", "text <i>"], rows, searchable=True)
    many = ReportTable("Many rows", ["row", "square"], [(k, k * k) for k in range(40)])
    found = Verdict("repair", HOSTILE[0], 0.1234, interval(0.1, 0.15), 0.01, (HOSTILE[1], HOSTILE[8]))
    return [
        ReportSection(
            "first",
            HOSTILE[3],
            "Is it hidden?",
            found,
            [("A curve", curve())],
            [worst],
            [HOSTILE[4]],
            action=ReportAction(HOSTILE[3], HOSTILE[0], f"poolscope tune {HOSTILE[0]}"),
        ),
        ReportSection(
            "second",
            "Two",
            HOSTILE[9],
            Verdict("watch", "Perhaps.", 12),
            [("Four panels", panels())],
            [many],
            explained_by="scores.md#limits",
        ),
        ReportSection(
            "third",
            "Three",
            "Fine?",
            Verdict("ok", "Yes."),
            [("Bars", named_bars())],
            [pair_table()],
            link="https://example.org/page",
        ),
        ReportSection("data", "Four", "What else?", notes=["Nothing else."], explained_by="audit.md"),
    ]


def explorer(**options: object) -> PairExplorer:
    clouds, vocabulary = hostile_clouds()
    sizes = {"worst": 10, "nearest": 10, "random": 20, **options}
    return pair_explorer(clouds, socm(clouds), vocabulary=vocabulary, section="first", **sizes)


def page() -> str:
    return render_page(HOSTILE[1], HOSTILE[4], sections(), explorer=explorer(), provenance={"note": HOSTILE[0]})
