"""The errors poolscope raises, and checks that many modules share: of optional packages and of whole numbers.

Every message has three parts: what was received, what is allowed, what to do next.
"""

from __future__ import annotations

import importlib
import importlib.util
import operator
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from poolscope.words import clean_error, in_line


class PoolscopeError(Exception):
    r"""Base of every error that poolscope raises on purpose; its words are clean, in one line (`words.in_line`).

    So are those of the error that is being handled: a traceback shows it too.

    >>> str(PoolscopeError("mysql://me:open-sesame@host/base?api_key=open-sesame is no file"))
    'mysql://…@host/base?api_key=… is no file'
    >>> str(PoolscopeError("the column \x1b]0;title\x07 is no text"))
    'the column ␛]0;title␇ is no text'
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*(in_line(part) if isinstance(part, str) else part for part in args))
        handled = sys.exc_info()[1]
        if not isinstance(handled, PoolscopeError):
            clean_error(handled)


class InputError(PoolscopeError, ValueError):
    """An argument, a file or a text that cannot be used as it is."""


class DegenerateCloudError(InputError):
    """A token cloud for which the requested quantity is not defined (empty, zero mean, not finite)."""


class OutputError(InputError, OSError):
    """A place where nothing can be written: a folder for a file, missing rights, a full disk."""


class ModelError(PoolscopeError):
    """A model that cannot be reached, loaded safely, or understood."""


class LibraryError(ModelError):
    """A library of others failed over a model; the message has its cause."""


class StoreError(PoolscopeError):
    """A cloud file or store that is missing, foreign, damaged or belongs to other settings."""


class MissingExtraError(PoolscopeError, ImportError):
    """An optional package is needed and not installed."""


@contextmanager
def reading(
    path: object, remedy: str, *, kind: type[PoolscopeError] = StoreError, is_not: str = "what its name says"
) -> Iterator[None]:
    """Turn whatever a parser raises over a file into one line of ours, an error of `kind`.

    Damaged bytes raise whatever the parser happens to do next: a system error, a syntax error, memory that is not
    there. So all of it is caught, and nothing but parsing belongs into the body.
    """
    try:
        yield
    except (PoolscopeError, FileNotFoundError):
        raise
    except PermissionError as error:
        raise not_permitted(path, error, kind=kind) from error
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:200]
        raise kind(
            f"{path}: damaged, or not {is_not} ({type(error).__name__}{': ' if reason else ''}{reason}). {remedy}"
        ) from error


def not_permitted(
    path: object, error: OSError | None = None, *, kind: type[PoolscopeError] = InputError
) -> PoolscopeError:
    """The error of a file or folder that the system does not let be read: no right, or a name too long."""
    reason = (error and error.strerror) or "Permission denied"
    own = error is None or isinstance(error, PermissionError)
    remedy = "Give yourself the right to read it, or name another" if own else "Name another"
    return kind(f"{path}: it cannot be read ({reason}). {remedy}.")


class PanicError(RuntimeError):
    """What a library written in Rust says as it gives up."""


@contextmanager
def panics_raised() -> Iterator[None]:
    """A panic of a library written in Rust as an ordinary error; else it would end everything, as Ctrl-C does."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise PanicError(str(error)) from error


@contextmanager
def explained(what: str, remedy: str) -> Iterator[None]:
    """Turn whatever a library of others raises over a model into one line of ours: `what` failed, the cause, a remedy.

    Files of others make a library raise anything, a panic of Rust among it; so no list says what is caught. A warning
    that the caller has turned into an error stays one.

    >>> with explained("m: it cannot be opened", "Download it again."):
    ...     [][0]
    Traceback (most recent call last):
    poolscope.errors.LibraryError: m: it cannot be opened (IndexError: list index out of range). Download it again.
    """
    try:
        with panics_raised():
            yield
    except (PoolscopeError, Warning):
        raise
    except Exception as error:
        raise LibraryError(f"{what} ({in_one_line(error)}). {remedy}") from error


def in_one_line(error: BaseException) -> str:
    r"""The kind and the words of an error of others, which may have many lines.

    >>> in_one_line(ValueError("one\n  two"))
    'ValueError: one two'
    """
    words = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}{': ' if words else ''}{words}"


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which extra of poolscope brings it.

    >>> require("json", "torch").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # the package is there but broken: its own message says more than ours
        raise _missing([(module.partition(".")[0], extra)]) from error


def require_all(*needs: tuple[str, str]) -> None:
    """Look for optional modules, given as (module, extra), without importing them; one error names all that lack.

    >>> require_all(("json", "torch"), ("csv", "report"))
    """
    if missing := [need for need in needs if importlib.util.find_spec(need[0]) is None]:
        raise _missing(missing)


def _missing(needs: Sequence[tuple[str, str]]) -> MissingExtraError:
    """The error that names packages, the extras that bring them, and one command that installs them all."""
    packages = [repr(name) for name in dict.fromkeys(name for name, _ in needs)]
    extras = list(dict.fromkeys(extra for _, extra in needs))
    which = f"package {packages[0]}, which is" if len(packages) == 1 else f"packages {_listed(packages)}, which are"
    come = "It comes" if len(packages) == 1 else "They come"
    brought = f"extra{'s' if len(extras) > 1 else ''} {_listed([repr(extra) for extra in extras])}"
    return MissingExtraError(
        f"this needs the {which} not installed. {come} with the {brought}: pip install 'poolscope[{','.join(extras)}]'"
    )


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def shorten(value: object) -> str:
    """A value as an error message can show it: in one line, and not all of it.

    >>> shorten("a text of many words, of which an error shows the first ones alone")
    "'a text of many words, of which an error shows the first ..."
    """
    try:
        shown = " ".join(line.strip() for line in repr(value).split("\n")).strip()
    except Exception:  # nested too deeply, a whole number of thousands of digits, an object that does not show itself
        shown = f"a value of type {type(value).__name__}"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def did_you_mean(typed: object, names: Iterable[str]) -> str:
    """A sentence that proposes the name nearest to what was typed; empty where none is near.

    >>> did_you_mean("cosin", ["cosine", "dot"]), did_you_mean("x", ["cosine"])
    (" Did you mean 'cosine'?", '')
    """
    near = get_close_matches(str(typed), [str(name) for name in names], n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def whole_number(value: Any, name: str, *, least: int = 1, most: float = float("inf")) -> int:
    """The value as an int, or an error that names it where it is no whole number, too small or too large a one.

    >>> whole_number(3, "k")
    3
    """
    truth = type(value).__name__ in ("bool", "bool_")  # numpy 1 takes its own for an index, with a warning
    try:
        number = least - 1 if truth else operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        upper = " or more" if number < least else f" to {most}"
        raise InputError(f"{name}: received {shorten(value)}; allowed: a whole number, {least}{upper}. Try {least}.")
    return number
