"""Secrets stay out of everything that is written or printed.

A secret is known by its value or by its place. Values: environment variables with a secret's name, the one that
`api_key_env` names, passwords in URLs, secret options and environment entries of a recipe's servers. A known value of
at least 8 characters is replaced by `***` wherever it stands, also as JSON, HTML or a URL spells it, and as basic
authentication encodes it; everything else in a text stays as it is. Places: the user part of a URL, secret options of
a command line, bearer tokens, secret keys of a table. They are replaced in commands, addresses and messages, however
short they are, and never in what a model wrote.

`distill.artifacts` applies this to every file, `distill.commands.progress` to all output, `distill.errors`
to every message. It imports nothing of the project. It does not find secrets in a user's own data, which nothing
names as such.
"""

import base64
import html
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

import orjson

MASK = "***"
MIN_CHARACTERS = 8
_PLACEHOLDERS = frozenset(
    {"password", "changeme", "placeholder", "notneeded", "not-needed", "undefined", "disabled", "dummy-key"}
)
"""Written where a key is asked for and none is needed; replacing such words would damage texts."""
_PLAIN_WORD = re.compile(r"[a-z]{1,15}|[A-Z]{1,15}|[\d.]{1,11}")
"""In a variable that is secret by its name alone such a value is a setting: FOO_TOKEN=disabled."""

_SECRET_WORDS = frozenset({"password", "passwd", "passphrase", "secret", "credential", "credentials", "apikey"})
_OF_KEY = frozenset({"api", "access", "secret", "private", "auth", "signing", "encryption", "master", "account"})
_OF_TOKEN = frozenset(
    {"api", "access", "auth", "bearer", "hf", "hub", "id", "refresh", "session", "secret", "security", "personal"}
)
_NOT_THE_SECRET = frozenset({"env", "file", "path", "name", "dir", "url", "type", "id", "keyfile", "prompt"})
"""Last words of names that say where a secret lies, not what it is: api_key_env."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_FREE = frozenset(
    {"environment", "arguments", "chat_template_kwargs", "mm_processor_kwargs", "extra_body", "extra_headers", "set"}
)
"""Tables of a recipe whose keys are the user's own or another program's; only there a name makes a secret."""
_COMMANDS = frozenset({"command", "extra"})
"""Lists of a recipe that are command lines."""

_USERINFO = re.compile(r"""(://)[^\s/?#"'<>\\]*@""")
_QUERY = re.compile(
    r"([?&][\w-]*(?:key|token|secret|password|pwd|signature|sig|credential)=)[^&#\s\"']+", re.IGNORECASE
)
_LOUD = r"(?:password|passphrase|secret|api[-_]?key|access[-_]key|(?:hf|hub|access|auth|bearer)[-_]token)"
_OPTION = re.compile(rf"(--[\w.-]*{_LOUD}(?:=|\s+))[^\s\"',\]]+")
_FIELD = re.compile(rf"""(["'][\w-]*{_LOUD}["']\s*:\s*\[?["'])[^"']+""", re.IGNORECASE)
_BEARER = re.compile(r"\b((?:Bearer|Basic) +)(?=[\w.~+/=-]*\d)[\w.~+/=-]{6,}", re.IGNORECASE)
_PLACES = (_QUERY, _OPTION, _FIELD, _BEARER)

_known: dict[str, None] = {}
_spellings: tuple[str, ...] = ()
_needles: tuple[bytes, ...] = ()
_pattern: re.Pattern[str] | None = None


def know(*values: str | None) -> None:
    """Remember secret values; shorter ones than MIN_CHARACTERS and placeholders are not replaced by value."""
    global _spellings, _needles, _pattern
    new = {value for value in values if value and len(value) >= MIN_CHARACTERS and value not in _PLACEHOLDERS}
    if new <= _known.keys():
        return
    _known.update(dict.fromkeys(sorted(new)))
    spelt = {spelling for value in _known for spelling in _spelt(value)}
    _spellings = tuple(sorted(spelt, key=lambda spelling: (-len(spelling), spelling)))
    _needles = tuple(spelling.encode(errors="surrogatepass") for spelling in _spellings)
    _pattern = re.compile("|".join(map(_exactly, _spellings)))


def know_environment(environment: Mapping[str, str] = os.environ) -> None:
    """Remember the values of variables that are secret by their name, and passwords in URLs (proxies)."""
    for name, value in environment.items():
        know_url(value)
        if is_secret(name) and not value.startswith(("/", "~", ".")) and not _PLAIN_WORD.fullmatch(value):
            know(value)


def know_url(value: str) -> None:
    """Remember the password in a URL (its user name, where there is no password), and secrets in its query."""
    if "://" not in value:
        return
    for found in _QUERY.finditer(value):
        know(*_both(found[0].removeprefix(found[1])))
    if "@" not in value:
        return
    userinfo, at, _ = value.partition("://")[2].partition("/")[0].rpartition("@")
    user, colon, password = userinfo.partition(":")
    if at:
        know(*_both(password if colon else user))
        if colon:
            pair = f"{unquote(user)}:{unquote(password)}"
            know(*(base64.b64encode(pair.encode(coding, "replace")).decode() for coding in ("utf-8", "latin-1")))


def _both(value: str) -> tuple[str, str]:
    return value, unquote(value)


def know_recipe(values: Any, name: str = "", *, free: bool = False) -> None:
    """Remember the secrets that a recipe's values hold or name; they need not make sense yet."""
    name = name.rpartition(".")[2]
    if isinstance(values, Mapping) and name == "headers_env":
        for value in map(str, values.values()):
            know(os.environ.get(value, None if value.isupper() else value))
    elif isinstance(values, Mapping):
        for key, value in values.items():
            know_recipe(value, str(key), free=free or name in _FREE)
    elif isinstance(values, list | tuple):
        if name in _COMMANDS:
            words = [str(value) for value in values]
            know(*(secret for secret in _of_command(words) if not secret.startswith(("/", "."))))
        for value in values:
            know_recipe(value, name, free=free)
    elif isinstance(values, str):
        if name == "api_key_env":
            # A key written where its variable's name belongs is a secret as well.
            know(os.environ.get(values, None if values.isupper() else values))
        elif free and is_secret(name):
            know(values)
        elif name in _COMMANDS | _FREE:
            know(*_of_command(values.split()))  # a table or list written as one text: refused, and shown
        if free:
            know(*_in_fields(values))
        know_url(values)


def spellings() -> tuple[bytes, ...]:
    """Every spelling of every known secret, the longest first: for a process that replaces them by itself."""
    return _needles


def is_secret(name: str) -> bool:
    """Whether a variable, option or key of this name holds a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _NOT_THE_SECRET:
        return False
    if any(word in _SECRET_WORDS or word.endswith("password") for word in words) or words[-1] == "authorization":
        return True
    before = words[-2] if len(words) > 1 else ""
    # A variable of the environment is named for what it holds: TEACHER_KEY. An eos_token is a setting.
    variable = name.isupper()
    if name == "--token" or (variable and before and words[-1] in ("pat", "pwd", "pass")):
        return True
    return (words[-1] == "key" and (variable or before in _OF_KEY)) or (
        words[-1] == "token" and (variable or before in _OF_TOKEN)
    )


def is_secret_header(name: str) -> bool:
    """Whether a header of a request holds a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    ends_secret = words[-1:] in (["key"], ["token"], ["cookie"], ["signature"]) and "idempotency" not in words
    return ends_secret or is_secret(name)


def exact(text: str) -> str:
    """A text without the known values; otherwise as it was. For what a model wrote, too."""
    if _pattern is None or not any(spelling in text for spelling in _spellings):
        return text
    return _pattern.sub(MASK, text)


def unfinished(text: str) -> int:
    """How many characters at the end of a text may be the beginning of a known value."""
    longest = max(map(len, _spellings), default=0)
    ends = (count for count in range(min(longest - 1, len(text)), 0, -1))
    return next((count for count in ends if any(each.startswith(text[-count:]) for each in _spellings)), 0)


def message(text: str) -> str:
    """A message, log line or address without known values and without what stands in a secret's place."""
    text = exact(text)
    if "@" in text:
        text = _USERINFO.sub(rf"\1{MASK}@", text)
    for pattern in _PLACES:
        text = pattern.sub(rf"\1{MASK}", text)
    return text


def url(address: str) -> str:
    """An address without its user part and the secrets in its query: it names the server without credentials."""
    return _QUERY.sub(rf"\1{MASK}", _USERINFO.sub(r"\1", exact(address)))


def command(parts: Sequence[str]) -> list[str]:
    """A command line without the secrets in it: `--api-key X`, `--api-key=X`, `HF_TOKEN=X`, URLs with passwords."""
    shown: list[str] = []
    secret = False
    for part in parts:
        name, equals, _ = part.partition("=")
        if secret and not part.startswith("-"):
            shown.append(MASK)
        elif equals and is_secret(name):
            shown.append(f"{name}={MASK}")
        else:
            shown.append(message(part))
        secret = is_secret(part) and not equals if part.startswith("-") else secret
    return shown


def _of_command(parts: Sequence[str]) -> list[str]:
    """The secrets that `command` masks by their option, variable or key of a JSON value."""
    pairs = [(part, shown) for part, shown in zip(parts, command(parts), strict=True) if part != shown]
    named = [part.removeprefix(shown.removesuffix(MASK)) for part, shown in pairs if shown.endswith(MASK)]
    return [*named, *(secret for part in parts for secret in _in_fields(part))]


def _in_fields(text: str) -> list[str]:
    """The values of secret keys in a JSON text."""
    return [found[0].removeprefix(found[1]) for found in _FIELD.finditer(text)]


def tree(value: Any) -> Any:
    """A JSON value whose strings and keys hold no known value; numbers stay."""
    return _strings(value, exact)


def _strings(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with all its strings and keys changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): _strings(item, change) for key, item in value.items()}
    return [_strings(item, change) for item in value] if isinstance(value, list | tuple) else value


def _encodable(text: str) -> str:
    """A text in which the halves of a surrogate pair are one character, and a lone half is U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def settings(value: Any, name: str = "", *, free: bool = False) -> Any:
    """A recipe's values as they may be kept: secrets by name, in addresses and in command lines are masked."""
    name = name.rpartition(".")[2]
    if isinstance(value, Mapping):
        return {key: settings(item, str(key), free=free or name in _FREE) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if name in _COMMANDS:
            return command([str(part) for part in value])
        return [settings(item, name, free=free) for item in value]
    if isinstance(value, str):
        if free and is_secret(name):
            return MASK
        return _QUERY.sub(rf"\1{MASK}", _USERINFO.sub(rf"\1{MASK}@", exact(value)))
    return value


def is_masked(part: str) -> bool:
    """Whether `settings` has masked a value: it comes from a run's copy of a recipe and cannot be used."""
    in_query = "://" in part and f"={MASK}" in part
    return part == MASK or part.endswith(f"={MASK}") or f"://{MASK}@" in part or in_query


def dumps(value: Any, option: int = 0) -> bytes:
    """JSON text of a value without known secrets in its strings.

    What no JSON text in UTF-8 can hold, half a surrogate pair, becomes the sign for an unreadable character.
    """
    try:
        data = orjson.dumps(value, option=option)
    except TypeError:
        value = _strings(value, _encodable)
        data = orjson.dumps(value, option=option)
    if not any(needle in data for needle in _needles):
        return data
    return orjson.dumps(tree(orjson.loads(data)), option=option)


def text_bytes(data: bytes) -> bytes:
    """Encoded text without the known values."""
    if not any(needle in data for needle in _needles):
        return data
    return exact(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def _spelt(value: str) -> set[str]:
    """A value as it may stand in a text, a JSON string, a Python string, a page or a URL."""
    as_json = orjson.dumps(value.encode(errors="replace").decode())[1:-1].decode()
    escaped = value.encode("unicode_escape").decode()
    in_page = html.escape(value, quote=False).replace("'", "&#39;").replace('"', "&#34;")
    in_url = {quote(value, safe=""), quote(value)}
    return {value, as_json, escaped, repr(value)[1:-1], html.escape(value), in_page, *in_url}


def _exactly(spelling: str) -> str:
    # Digits alone are a secret only where they are the whole number.
    return rf"(?<!\d){spelling}(?!\d)" if spelling.isdecimal() else re.escape(spelling)
