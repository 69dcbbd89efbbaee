"""Files in which clients of others find secrets by themselves; they are read here so that no message shows one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from poolscope.errors import InputError
from poolscope.files import text_of
from poolscope.words import SECRET_NAME, know

_SETTING = re.compile(r"^\s*([\w.-]+)\s*=\s*(\S+)\s*$", re.MULTILINE)
# A line of a password file: host:port:base:user:password, in which a backslash takes a colon or a backslash as it is.
_BEFORE_PASSWORD = re.compile(r"(?:(?:[^:\\]|\\.)*:){4}")
_ESCAPED = re.compile(r"\\(.)")


def know_hub_token() -> None:
    """Remember the token with which the hub is asked, where the user has logged in."""
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    know(_text(os.environ.get("HF_TOKEN_PATH") or f"{home}/token").strip())
    know(*_settings(_text(os.environ.get("HF_STORED_TOKENS_PATH") or f"{home}/stored_tokens")))


def know_object_store_keys() -> None:
    """Remember the keys with which S3, Google's and Azure's stores are asked."""
    know(*_settings(_text(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials")))
    know(*_settings(_text(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config")))
    google = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    know(*_settings(_text(google or "~/.config/gcloud/application_default_credentials.json")))


def know_postgres_passwords() -> None:
    """Remember the passwords that libpq reads from its password file and from its file of services."""
    for line in _text(os.environ.get("PGPASSFILE") or "~/.pgpass").splitlines():
        know(_ESCAPED.sub(r"\1", line[match.end() :]) if (match := _BEFORE_PASSWORD.match(line)) else None)
    know(*_settings(_text(os.environ.get("PGSERVICEFILE") or "~/.pg_service.conf")))


def _text(path: str) -> str:
    """The content of a file; empty where there is none that can be read."""
    with suppress(OSError, RuntimeError, UnicodeDecodeError, InputError):
        return text_of(Path(path).expanduser())
    return ""


def _settings(content: str) -> Iterator[str]:
    r"""The values of settings that are named like a secret, of lines NAME = VALUE or of JSON; of several lines, each.

    >>> list(_settings('[default]\naws_secret_access_key = open-sesame\nregion = eu'))
    ['open-sesame']
    >>> list(_settings('{"type": "user", "private_key": "BEGIN\\nopen-sesame\\n"}'))
    ['BEGIN', 'open-sesame']
    """
    settings: Mapping[str, Any] | list[tuple[str, str]] = _SETTING.findall(content)
    if content.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            settings = json.loads(content)
    for name, value in settings.items() if isinstance(settings, Mapping) else settings:
        if isinstance(value, str) and SECRET_NAME.search(name):
            yield from value.splitlines()
