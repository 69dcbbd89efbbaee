"""What a connector is: a name without secrets, batches of rows, and a search where the store has one of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from numpy.typing import NDArray

from poolscope.errors import InputError, PoolscopeError, did_you_mean, panics_raised
from poolscope.texts.reading import GROUP_COLUMNS, WELL_KNOWN
from poolscope.texts.records import is_missing
from poolscope.words import SECRET_NAME, know_address

Distance = Literal["cosine", "dot", "l2"]
DISTANCES: tuple[Distance, ...] = get_args(Distance)

BATCH = 1000
"""Rows asked of a store at a time."""

# The usual names of fields, the most telling first; a name that holds one of the hints fits too.
VECTORS = ("vector", "vectors", "embedding", "embeddings")
VECTOR_HINTS = ("embed", "vector", "emb")
TEXTS = (*WELL_KNOWN, "texts", "chunk", "page_content", "chunk_text", "title_text")
IDS = ("id", "ids", "_id", "uuid", "chunk_id")


class ConnectionFailedError(PoolscopeError, ConnectionError):
    """A store that cannot be reached, that refuses, or that breaks off."""


@dataclass(frozen=True)
class Fields:
    """Which fields of a row hold its vector, text, id and group; None: guessed from their names, and said."""

    vector: str | None = None
    text: str | None = None
    id: str | None = None
    group: str | None = None


@dataclass(frozen=True)
class Batch:
    """Some rows in the order of the store. A vector that is missing is None; texts and groups may be unknown."""

    ids: Sequence[str]
    vectors: NDArray[Any] | Sequence[Any]
    texts: Sequence[str | None] | None = None
    groups: Sequence[str | None] | None = None


@dataclass(frozen=True)
class Search:
    """The approximate search of a store: `find(queries, k, value)` gives k ids a query, with its setting at `value`.

    `setting` is the name of what is turned up for a better recall and `values` what it may be, the cheapest first;
    `current` is what holds when nothing is asked for (None: not known). Without a setting `values` is empty, and `find`
    is asked with None. `exact`: the store looks at every vector, so there is nothing to lose.
    """

    find: Callable[[NDArray[Any], int, int | None], Sequence[Sequence[str]]]
    kind: str
    setting: str = ""
    values: tuple[int, ...] = ()
    current: int | None = None
    exact: bool = False


class Connector(Protocol):
    """Rows with vectors, from wherever. `name` is shown everywhere, so it holds no secret.

    Two members more are used where a connector has them: `search`, a `Search`, and `close`.
    """

    @property
    def name(self) -> str:
        """Where the rows come from."""
        ...

    @property
    def distance(self) -> Distance | None:
        """What the store searches by; None where it does not say."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the reader, such as fields that were guessed."""
        ...

    def batches(self, size: int) -> Iterable[Batch]:
        """All rows, in the order of the store, at most `size` at a time."""
        ...


@dataclass(frozen=True)
class NewRows:
    """Rows for a new collection: ids, vectors (rows × d), and where they are known texts and documents."""

    ids: Sequence[str]
    vectors: NDArray[Any]
    texts: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    distance: Distance = "cosine"

    def columns(self) -> dict[str, Sequence[str]]:
        """What stands beside the vectors, by name."""
        named = {"id": self.ids, "doc_id": self.groups, "text": self.texts}
        return {name: values for name, values in named.items() if values is not None}

    def parts(self) -> Iterator[tuple[slice, list[dict[str, str]]]]:
        """Yield rows in parts: their positions, and the columns beside their vectors, except the ids."""
        for part in in_batches(len(self.ids), BATCH):
            chosen_columns = {name: values[part] for name, values in self.columns().items() if name != "id"}
            yield (
                part,
                [{name: values[k] for name, values in chosen_columns.items()} for k in range(part.stop - part.start)],
            )


@dataclass(frozen=True)
class ConnectorKind:
    """A kind of store: `words` say what to write, `accepts` recognises it and `open` makes the connector.

    `write` makes a new collection from rows, where the kind can do that. `extra` is the extra of poolscope that brings
    the client.
    """

    name: str
    words: str
    accepts: Callable[[str], bool]
    open: Callable[[str, Fields], Connector]
    extra: str | None = None
    write: Callable[[str, NewRows], None] | None = None


def already_there(place: object) -> InputError:
    """The refusal to write over something."""
    return InputError(f"{place}: there is one already, and nothing is overwritten. Name a new one.")


def guess(names: Iterable[str], usual: Sequence[str], hints: Sequence[str] = ()) -> str | None:
    """The first usual name among the names, whatever its case; else the only one that holds a hint.

    >>> guess(["id", "Embedding"], VECTORS), guess(["id", "title_emb"], VECTORS, VECTOR_HINTS), guess(["x"], VECTORS)
    ('Embedding', 'title_emb', None)
    """
    known = {name.lower(): name for name in names}
    for name in usual:
        if name in known:
            return known[name]
    fitting = [name for low, name in known.items() if any(hint in low for hint in hints)]
    return fitting[0] if len(fitting) == 1 else None


def chosen(part: str, wanted: str | None, names: Sequence[str], guessed: str | None, source: str) -> str | None:
    """The field that was named, refused where no field has that name; otherwise the guess."""
    if wanted is not None and wanted not in names:
        listing = ", ".join(names) or "none"
        raise InputError(
            f"{source}: received '{wanted}' as the field of the {part}; there are {listing}."
            f"{did_you_mean(wanted, names)}"
        )
    return guessed if wanted is None else wanted


def guessed_notes(wanted: Fields, taken: Fields) -> list[str]:
    """One sentence about the fields that nobody named; none where there are none."""
    parts = [("vectors", "vector"), ("texts", "text"), ("groups", "group")]
    guesses = [
        f"{words} '{getattr(taken, name)}'"
        for words, name in parts
        if getattr(wanted, name) is None and getattr(taken, name) is not None
    ]
    return [f"Fields taken by their names: {', '.join(guesses)}."] if guesses else []


def table_fields(
    wanted: Fields, vector: str, names: Sequence[str], words: Sequence[str], plain: Sequence[str], source: str
) -> Fields:
    """Text, id and group among the columns of a table: `words` may hold texts, `plain` ones ids and groups."""
    text = chosen("texts", wanted.text, names, guess(words, TEXTS), source)
    own = chosen("ids", wanted.id, names, guess([name for name in plain if name not in (vector, text)], IDS), source)
    others = [name for name in plain if name not in (vector, text, own)]
    return Fields(vector, text, own, chosen("groups", wanted.group, names, guess(others, GROUP_COLUMNS), source))


def metadata_fields(rows: Sequence[dict[str, Any]], wanted: Fields, source: str) -> Fields:
    """Text and group among the fields of some rows of a store without a schema: strings for texts, any for groups."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    wordy = [name for name in names if any(isinstance(row.get(name), str) for row in rows)]
    text = chosen("texts", wanted.text, names, guess(wordy, TEXTS), source)
    others = [name for name in names if name != text]
    group = chosen("groups", wanted.group, names, guess(others, GROUP_COLUMNS), source)
    return Fields(wanted.vector, text, wanted.id, group)


def split_address(address: str) -> SplitResult:
    """The parts of an address; one that is none is refused without being shown, as it may hold a password."""
    know_address(address)
    try:
        parts = urlsplit(address)
        # A password with / ? or # in it would be taken for the host, and shown.
        if (
            parts.netloc
            and "@" not in parts.netloc
            and "@" in (parts.path + parts.fragment + parts.query.partition("=")[0])
        ):
            raise ValueError("the host ends before an @")
    except ValueError as error:
        scheme = address.partition(":")[0]
        raise InputError(
            f"{scheme}: received an address whose host cannot be read; allowed: {scheme}://host:port/…, an "
            f"address of IPv6 in brackets. Check the brackets, and write / ? # @ of a password as %2F %3F %23 %40."
        ) from error
    return parts


def safe_name(address: str) -> str:
    """An address without user, password and query, for screens, files and errors.

    >>> safe_name("postgresql://me:secret@host:5432/base?table=t&sslpassword=p")
    'postgresql://host:5432/base'
    """
    parts = split_address(address)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, place, parts.path, "", "")) if parts.netloc else address.partition("?")[0]


def without_secrets(address: str) -> str:
    """An address as it may stand in a command: without password, and otherwise whole.

    >>> without_secrets("postgresql://me:secret@host/base?table=t&password=p"), without_secrets("my:vectors.npy")
    ('postgresql://me@host/base?table=t', 'my:vectors.npy')
    """
    parts = split_address(address)
    if not parts.netloc:
        return address
    user, at, place = parts.netloc.rpartition("@")
    parameters = [(key, value) for key, value in parse_qsl(parts.query) if not SECRET_NAME.search(key)]
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{place}", query=urlencode(parameters)))


def unencrypted(address: str, scheme: str, key: str | None, variable: str) -> list[str]:
    """One sentence where a key goes to another machine without TLS.

    >>> unencrypted("qdrant://host/c", "qdrant", "k", "KEY"), unencrypted("qdrant://localhost/c", "qdrant", "k", "KEY")
    (['The key (KEY) was sent to host unencrypted; qdrants://… uses TLS.'], [])
    """
    if key is None or not address.startswith(f"{scheme}://"):
        return []
    host = split_address(address).hostname
    here = host in (None, "localhost", "127.0.0.1", "::1")
    return [] if here else [f"The key ({variable}) was sent to {host} unencrypted; {scheme}s://… uses TLS."]


BROKE = "The connection broke; nothing was kept. Run it again."


def failed(name: str, error: Exception, remedy: str) -> ConnectionFailedError:
    """One line of a client's error."""
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return ConnectionFailedError(f"{name}: {type(error).__name__}: {reason}. {remedy}")


@contextmanager
def asking(name: str, remedy: str) -> Iterator[None]:
    """Whatever a client raises, refused, timed out or panicked, as one line of ours."""
    try:
        with panics_raised():
            yield
    except PoolscopeError:
        raise
    except Exception as error:
        raise failed(name, error, remedy) from error


def column(rows: Iterable[Mapping[str, Any]], name: str | None) -> list[str | None] | None:
    """A field of every row as a string; None where no field is meant."""
    return None if name is None else [string_or_none(row.get(name)) for row in rows]


def string_or_none(value: Any) -> str | None:
    """A value of a field as a string; None where there is none."""
    return None if is_missing(value) else str(value)


def in_batches(total: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` from 0 to `total`."""
    return (slice(start, min(start + size, total)) for start in range(0, total, size))
