"""`poolscope mcp`: three tools for assistants, over standard input and output (Model Context Protocol).

An assistant may be talked into asking for anything, so the tools can only read what the user can read, and ask only
servers on this machine or those that the user named: a key never goes elsewhere, and no text. A name that is no file
here is looked up on the hub, as everywhere; HF_HUB_OFFLINE=1 forbids that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any
from urllib.parse import parse_qsl

import poolscope
from poolscope.cli import arguments
from poolscope.cli.arguments import option
from poolscope.errors import InputError, PoolscopeError, require

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_TEXTS = 300
_QUERY = ("table", "column", "text", "id", "group", "texts")


def mcp(
    host: Annotated[
        list[str] | None, option("NAME", "A server that may be asked, beside those on this machine; may be repeated.")
    ] = None,
) -> None:
    """Serve three tools over standard input and output: audit a file of texts, check a runtime, explain a pair.

    An assistant starts this command itself; name `poolscope` with the argument `mcp` in its settings.
    """
    from poolscope.texts.plain import take_standard_input

    server = build_server(host or ())
    take_standard_input("the assistant")
    server.run("stdio")


def build_server(hosts: Sequence[str] = ()) -> Any:
    """The server with its tools; `hosts` are servers that may be asked, beside those on this machine."""
    library = require("mcp.server.mcpserver", "mcp")
    refused = require("mcp.server.mcpserver.exceptions", "mcp").ToolError
    from poolscope import __version__

    allowed = (*LOOPBACK, *hosts)
    server = library.MCPServer("poolscope", version=__version__, instructions=_INSTRUCTIONS, log_level="ERROR")

    def audit_texts(texts: str, model: str = arguments.MODEL, limit: int = _TEXTS) -> dict[str, Any]:
        """Audit an embedding model on a file of texts (.txt, .jsonl, .csv, .parquet).

        Each answer has a level (ok, unchecked, watch, repair), one sentence, a number, its interval and its floor.
        """
        with _in_one_line(refused):
            refuse_elsewhere(model, "model", allowed)
            refuse_elsewhere(texts, "texts", allowed)
            result = poolscope.audit(model, poolscope.read_texts(texts, limit=limit or None), cache=True)
        return {
            "model": result.model["name"],
            "texts": result.corpus["texts"],
            "notes": result.corpus["notes"],
            "answers": [{"question": answer.question, **answer.headline()} for answer in result.answers],
            "next": None if (last := result.answers[-1]).action is None else last.action.command,
        }

    def check_runtime(url: str, reference: str, model: str | None = None) -> dict[str, Any]:
        """Does an embedding server give the vectors of the reference model, and if not, what does it do instead?

        `url` is that of OpenAI's /v1/embeddings, TEI's /embed or Ollama's /api/embed; `model` the server's name of it.
        """
        with _in_one_line(refused):
            if "://" not in url:
                raise InputError(f"url: received {url[:60]!r}; allowed: an address, http://… or https://…. Pass one.")
            refuse_elsewhere(url, "url", allowed)
            refuse_elsewhere(reference, "reference", allowed)
            check = poolscope.check_runtime(url, reference, model=model)
        return {
            "level": check.verdict.level,
            "sentence": check.verdict.sentence,
            "evidence": list(check.verdict.evidence),
            "causes": check.match.rows()[:6],
            "next": check.step if check.verdict.level != "ok" else None,
        }

    def explain_pair(first: str, second: str, model: str = arguments.MODEL) -> dict[str, Any]:
        """Two texts: the cosine of their pooled vectors, and how far their token clouds differ behind it."""
        with _in_one_line(refused):
            refuse_elsewhere(model, "model", allowed)
            clouds = poolscope.as_encoder(model).encode([first, second])[-1]
            pair = poolscope.socm_pair(clouds[0], clouds[1])
        cosine, whole = 1 - 2 * pair.mean_distance, pair.squared_wasserstein
        hidden = pair.bures / whole if whole else 0.0  # of a text with itself nothing is hidden
        return {
            "cosine": cosine,
            "hidden_share": hidden,
            "tokens": clouds.lengths.tolist(),
            **{name: value for name, value in pair.to_dict().items() if name in ("d_mu", "d_sigma", "socm")},
            "sentence": (
                f"The means of the two texts have a cosine of {cosine:.3f}; {hidden:.0%} of the distance between their "
                f"token clouds (squared Wasserstein of two Gaussians) lies in how tokens spread, which means do not "
                f"see."
            ),
        }

    for tool in (audit_texts, check_runtime, explain_pair):
        server.tool()(tool)
    return server


_INSTRUCTIONS = (
    "poolscope measures what pooling hides in text embeddings. Levels: ok (measured and fine), unchecked (not "
    "asked, or too little to tell), watch, repair."
)


@contextmanager
def _in_one_line(kind: type[Exception]) -> Iterator[None]:
    """Turn an error of poolscope into one of the protocol, with the same line."""
    try:
        yield
    except PoolscopeError as error:
        raise kind(str(error)) from error


def refuse_elsewhere(address: str, name: str, allowed: Sequence[str]) -> None:
    """Refuse the address of a server, of vectors or of a data base that the user did not name; a path passes."""
    from poolscope.connectors.base import split_address
    from poolscope.stores.remote import is_remote, located

    address = located(address) if is_remote(address) else address  # which may lack a stroke
    if "://" not in address:
        return
    parts = split_address(address)
    if parts.hostname not in allowed:
        raise InputError(
            f"{name}: received the host {parts.hostname!r}; allowed: {', '.join(allowed)}. Start `poolscope mcp --host "
            f"{parts.hostname}` to let it be asked."
        )
    # A query may name another host, which data bases go by.
    if unknown := [key for key, _ in parse_qsl(parts.query, keep_blank_values=True) if key not in _QUERY]:
        raise InputError(
            f"{name}: received {unknown[0]!r} in the query of an address; allowed here: {', '.join(_QUERY)}. Leave it "
            f"out."
        )
