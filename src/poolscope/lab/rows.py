"""What the lab brings to the tables of the core, as data: its metrics, its commands, its services."""

_LAYERS, _TOKENS = "poolscope.lab.commands.layers", "poolscope.lab.commands.tokens"
_RESEARCH, _PAPER = "poolscope.lab.commands.research", "poolscope.lab.commands.paper"
_PREDICT, _LENGTH = "poolscope.lab.commands.predict", "poolscope.lab.commands.length"

METRICS = (
    {
        "name": "length",
        "words": "What the length of a text does to its vector and to a search.",
        "needs": "captures",
        "measure": "poolscope.lab.length.report:length_report",
        "page": "length.md",
    },
    {
        "name": "tokens",
        "words": "Norm and variance of token types, layer by layer.",
        "needs": "clouds",
        "measure": "poolscope.lab.tokens.measure:token_statistics",
        "page": "tokens.md",
        "part": "poolscope.lab.tokens.measure:token_moments",
        "merge": "poolscope.lab.tokens.moments:TokenMoments.merge",
        "finish": "poolscope.lab.tokens.summary:summarise",
        "on_engine": "poolscope.lab.tokens.on_engines:tokens_with",
    },
    {
        "name": "layers",
        "words": "Where a model concentrates its token clouds, and what does it.",
        "needs": "captures",
        "measure": "poolscope.lab.layers.measure:layers",
        "page": "layers.md",
    },
    {
        "name": "windows",
        "words": "What is lost when tokens are replaced by the means of adjacent windows?",
        "needs": "clouds",
        "measure": "poolscope.lab.windows:windows",
        "page": "tokens.md",
        "part": "poolscope.lab.windows:window_moments",
        "merge": "poolscope.lab.windows:WindowMoments.merge",
        "finish": "poolscope.lab.windows:finish_windows",
    },
)
# Name, module, one line, panel of the help; behind it the group, where the command belongs to one.
COMMANDS = (
    ("length", _LENGTH, "Do long texts look alike, do short ones win, is the end still found?", "Look closer"),
    ("layers", _LAYERS, "What every layer of a transformer does to the clouds.", "Look closer"),
    ("tokens", _TOKENS, "Norm and variance of token types, layer by layer.", "Look closer"),
    ("windows", _LAYERS, "What is lost when tokens are replaced by means of windows.", "Look closer"),
    ("correlate", _RESEARCH, "Do audit numbers correlate with task scores across models?", "More", "lab"),
    ("predict", _PREDICT, "Does SOCM, or any number without queries, predict what pooling costs?", "More", "lab"),
    ("transport", _RESEARCH, "How much of the exact transport distance do mean and covariance see?", "More", "lab"),
    ("intervene", _RESEARCH, "What follows if the token clouds change and every mean is kept?", "More", "lab"),
    ("paper", _PAPER, "A paper, figure by figure: our numbers beside the printed ones.", "More", "lab"),
)
SERVICES = (
    ("what attention hands on", "poolscope.lab.capture.model:handed_on"),
    ("state of token statistics", "poolscope.lab.tokens.moments:check_state"),
)
