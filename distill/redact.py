"""Secrets stay out of everything that is written or printed.

A secret is known by its value, by its place or by its form. Values: environment variables with a secret's name, the
one that `api_key_env` names, passwords in URLs, secret options and environment entries of a recipe's servers. A known
value of at least 8 characters is replaced by `***` at every place, also in the spelling of JSON, HTML, a URL, base64
or hexadecimal digits. The rest of the text stays unchanged. Places: the user part and the query of a URL, secret
options of a command line, bearer tokens, cookies, passwords of a connection string, secret keys of a table. They are
replaced in commands, addresses and messages, however short they are, and never in what a model wrote. Forms: how the
keys of providers begin. They are replaced in messages; in a recipe or the environment they make a value known.

`distill.artifacts` applies this to every file, `distill.commands.progress` to all output, `distill.errors` to every
message. It imports nothing of the project. It does not find secrets in a user's own data.
"""

import base64
import html
import json
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
"""Last words of names that tell the place of a secret, not its value: api_key_env."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_FREE = frozenset(
    {"environment", "arguments", "chat_template_kwargs", "mm_processor_kwargs", "extra_body", "extra_headers", "set"}
)
"""Tables of a recipe whose keys are the user's own or another program's; only there a name makes a secret."""
_COMMANDS = frozenset({"command", "extra"})
"""Lists of a recipe that are command lines."""

_USERINFO = re.compile(
    r"""(:[/\\]{2,4})(?:[^\s/?#"'<>\\]*@"""
    # A password may hold what ends a host; digits behind a host's colon are a port.
    r"""|[^\s/?#"'<>\\:@\[]{0,100}:(?!\d{1,5}[/?#])[^\s"'<>\\]{0,200}@)"""
)
_BARE_USERINFO = re.compile(
    r"""(?<![\w@/.:+%-])()(?!mailto:)[\w.+%-]{1,64}:[^\s@/"'<>:]{1,128}@(?=(?!sha\d+:)[\w.-]{1,100}(?::\d|/))"""
)
"""In an address without its scheme: user:password@host:8000/v1."""
_QUERY = re.compile(
    r"([?&#](?:[\w-]*(?:key|token|secret|password|passwd|pwd|pass|signature|sig|credential|auth)"
    r"|code(?==[^&#\s\"']{16}))=)[^&#\s\"']+",
    re.IGNORECASE,
)
_LOUD = r"(?:password|passphrase|secret|api[-_]?key|access[-_]key|(?:hf|hub|access|auth|bearer)[-_]token)"
_OPTION = re.compile(rf"(--[\w.-]*{_LOUD}(?:=|\s+))[^\s\"',\]]+")
_FIELD = re.compile(rf"""(["'][\w-]*{_LOUD}["']\s*:\s*\[?["'])[^"']+""", re.IGNORECASE)
_BEARER = re.compile(r"\b((?:Bearer|Basic) +)(?=[\w.~+/=-]*\d)[\w.~+/=-]{6,}", re.IGNORECASE)
_COOKIE = re.compile(r"""\b((?:Set-)?Cookie["']?\s*[:=]\s*["']?)[^\r\n"'=]{1,200}=[^\r\n"']+""", re.IGNORECASE)
_CONNECTION = re.compile(
    r"""\b(\w{0,40}(?:password|passwd|pwd|secret|api_?key|access_key|AccountKey|SharedAccess(?:Key|Signature))=["']?"""
    r"""|token=["']|(?-i:SECRET) ')[^\s;&,'")\]]+""",
    re.IGNORECASE,
)
_PEM = re.compile(
    r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)
_HOOK = re.compile(r"(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/)[\w/-]+")
_FORM = re.compile(
    r"(?<![A-Za-z0-9])()(?:sk-(?:ant|proj|svcacct|admin)-[\w-]{20,}"
    r"|sk-(?:[a-z0-9]{1,12}-){0,2}(?=[A-Za-z]*\d)[A-Za-z0-9]{20,}|(?:gsk|r8)_(?=[A-Za-z]*\d)[A-Za-z0-9]{20,}"
    r"|hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{16,}|AIza[\w-]{35}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])|ya29\.[\w.-]{20,}|xox[abeprs]-[\w-]{10,}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+)"
)
"""Keys as providers write them. A word that only begins like one is too short: sk-learn, hf_transfer, ghp_dataset."""
_PLACES = (_QUERY, _OPTION, _FIELD, _BEARER, _COOKIE, _CONNECTION, _PEM, _HOOK, _FORM)
_PATH_KEY = re.compile(r"(?<=/)(?=[A-Za-z]*\d[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{20,}(?=[/?#]|\Z)")
"""A part of a server's path that is no word: gateways take their token there."""

_known: dict[str, None] = {}
_spellings: tuple[str, ...] = ()
_needles: tuple[bytes, ...] = ()
_pattern: re.Pattern[str] | None = None


def know(*values: str | None) -> None:
    """Remember secret values; shorter ones than MIN_CHARACTERS and placeholders are not replaced by value."""
    global _spellings, _needles, _pattern
    # A key of several lines (PEM) is printed line by line.
    pieces = {piece for value in values if value for piece in (value, value.strip(), *_long_lines(value))}
    new = {value for value in pieces if len(value) >= MIN_CHARACTERS and value not in _PLACEHOLDERS}
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
        know(*_of_form(value))
        if is_secret(name) and not value.startswith(("/", "~", ".")) and not _PLAIN_WORD.fullmatch(value):
            know(value)


def know_url(value: str) -> None:
    """Remember the password in a URL (its user name, where there is no password), and secrets in its query."""
    address = _USERINFO.search(value) or _BARE_USERINFO.search(value)
    if address is None and "://" not in value:
        return
    for found in _QUERY.finditer(value):
        know(*_both(found[0].removeprefix(found[1])))
    if address is not None:
        user, colon, password = address[0].removeprefix(address[1])[:-1].partition(":")
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
            held = os.environ.get(value, None if value.isupper() else value)
            know(held, *(part.partition("=")[2] for part in (held or "").split(";")))  # cookies
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
        _know_text(values, name, free=free)


def _know_text(value: str, name: str, *, free: bool) -> None:
    """Remember the secrets in one text of a recipe, which is the value of a key of this name."""
    if name == "api_key_env":
        # A key written where its variable's name belongs is a secret as well.
        know(os.environ.get(value, None if value.isupper() else value))
    elif is_secret(name):  # no key of a recipe: the user's own, or one that is refused and shown
        know(value)
    elif name in _COMMANDS | _FREE:
        know(*_of_command(value.split()))  # a table or list written as one text: refused, and shown
    if free:
        know(*_in_fields(value))
    elif name == "base_url":
        know(*_PATH_KEY.findall(value))
    know(*_of_form(value))
    know_url(value)


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
    # The name of an environment variable says that it is a secret (TEACHER_KEY). An eos_token is a setting.
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


def cut(text: str, characters: int) -> str:
    """The beginning of a text, without a part of a known value at its end."""
    return text if len(text) <= characters else exact(text)[:characters]


def unfinished(text: str) -> int:
    """How many characters at the end of a text may be the beginning of a known value."""
    longest = max(map(len, _spellings), default=0)
    ends = (count for count in range(min(longest - 1, len(text)), 0, -1))
    return next((count for count in ends if any(each.startswith(text[-count:]) for each in _spellings)), 0)


def message(text: str) -> str:
    """A message, log line or address without known secret values, and without values beside the names of secrets."""
    text = exact(text)
    if "@" in text:
        text = _without_userinfo(text, f"{MASK}@")
    for pattern in _PLACES:
        text = pattern.sub(rf"\1{MASK}", text)
    return text


def url(address: str) -> str:
    """An address without its user part and the secrets in its query: it names the server without credentials."""
    return _QUERY.sub(rf"\1{MASK}", _without_userinfo(exact(address), ""))


def _without_userinfo(text: str, shown: str) -> str:
    """A text with `shown` in place of every user part of an address."""
    return _BARE_USERINFO.sub(shown, _USERINFO.sub(rf"\1{shown}", text))


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


def _of_form(text: str) -> list[str]:
    """The keys in a text that their form gives away."""
    if "PRIVATE KEY-----" in text:
        return [found[0] for found in _PEM.finditer(text.replace("\\n", "\n"))]
    return [found[0].removeprefix(found[1]) for form in (_FORM, _HOOK, _CONNECTION) for found in form.finditer(text)]


def _long_lines(value: str) -> list[str]:
    lines = value.splitlines()
    return [line.strip() for line in lines if len(lines) > 1 and len(line.strip()) > 15 and "-----" not in line]


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


def encodable(text: str) -> str:
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
        return _QUERY.sub(rf"\1{MASK}", _without_userinfo(exact(value), f"{MASK}@"))
    return value


def is_masked(part: str) -> bool:
    """Whether `settings` has masked a value: it comes from a run's copy of a recipe and cannot be used."""
    return part == MASK or part.endswith(f"={MASK}") or ("://" in part and MASK in part)


def dumps(value: Any, option: int = 0) -> bytes:
    """JSON text of a value without known secrets in its strings.

    What no JSON text in UTF-8 can hold, half a surrogate pair, becomes the sign for an unreadable character.
    """
    try:
        data = orjson.dumps(value, option=option)
    except TypeError:
        value = _strings(value, encodable)
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
    """The spellings of a value in a text, a JSON string, a Python string, a page or a URL."""
    as_json = orjson.dumps(value.encode(errors="replace").decode())[1:-1].decode()
    as_ascii = json.dumps(value)[1:-1]
    escaped = value.encode("unicode_escape").decode()
    in_page = html.escape(value, quote=False).replace("'", "&#39;").replace('"', "&#34;")
    in_url = {quote(value, safe=""), quote(value)}
    in_url |= {_PERCENT.sub(lambda sign: sign[0].lower(), each) for each in in_url}
    data = value.encode(errors="replace")
    encoded = {base64.b64encode(data).decode().rstrip("="), base64.urlsafe_b64encode(data).decode().rstrip("=")}
    as_text = {
        value,
        as_json,
        as_json.replace("/", "\\/"),
        as_ascii,
        escaped,
        repr(value)[1:-1],
        html.escape(value),
        in_page,
    }
    return {*as_text, *in_url, *encoded, data.hex(), data.hex().upper()}


_PERCENT = re.compile("%[0-9A-F]{2}")


def _exactly(spelling: str) -> str:
    # Digits alone are a secret only where they are the whole number.
    return rf"(?<!\d){spelling}(?!\d)" if spelling.isdecimal() else re.escape(spelling)
