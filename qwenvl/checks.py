"""What a question may look like: every check of text, history and options, whatever transport they came by.

Values arrive as JSON, form fields or Socket.IO gave them, so any type is possible. Knows nothing of pictures.
"""

import math
from typing import Any

from qwenvl.config import DETAILS, Settings
from qwenvl.errors import InvalidRequest
from qwenvl.messages import Options, Turn

MAX_TURNS = 200
MAX_CHARS_PER_TOKEN = 16  # our own long answers must be welcome when they come back as history


def text(name: str, value: Any, max_chars: int) -> str:
    """`value` as clean text: a string without NUL or half characters, stripped, at most `max_chars` long."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be text.")
    if "\0" in value:
        raise InvalidRequest(f"{name} contains a NUL character; remove it.")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidRequest(f"{name} is not valid Unicode text (it holds half a character).")
    value = value.replace("\r\n", "\n").strip()
    if len(value) > max_chars:
        raise InvalidRequest(f"{name} is too long: {len(value)} characters, at most {max_chars} are accepted.")
    return value


def options(settings: Settings, *, detail: Any = None, max_new_tokens: Any = None, temperature: Any = None) -> Options:
    """Options with defaults for what is absent (None or an empty form field)."""
    limit = settings.max_new_tokens_limit
    default_tokens = min(settings.max_new_tokens, limit)
    return Options(
        detail=_choice("detail", _or(detail, settings.detail), DETAILS),
        max_new_tokens=_whole_number("max_new_tokens", _or(max_new_tokens, default_tokens), 1, limit),
        temperature=_number("temperature", _or(temperature, 0.0), 0.0, 2.0),
    )


def history(settings: Settings, value: Any) -> tuple[Turn, ...]:
    """Earlier turns, `user` and `assistant` in turn, beginning with `user` and ending with `assistant`."""
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise InvalidRequest("history must be a list of turns.")
    if len(value) > MAX_TURNS:
        raise InvalidRequest(f"history has {len(value)} turns, at most {MAX_TURNS} are accepted.")
    if len(value) % 2:
        raise InvalidRequest("history must end with an answer of the assistant.")
    return tuple(_turn(settings, index, entry) for index, entry in enumerate(value))


def _turn(settings: Settings, index: int, entry: Any) -> Turn:
    role = ("user", "assistant")[index % 2]
    if not isinstance(entry, dict) or entry.get("role") != role or not isinstance(entry.get("content"), str):
        raise InvalidRequest(f'history[{index}] must be {{"role": "{role}", "content": text}}.')
    max_chars = settings.max_question_chars
    if role == "assistant":
        max_chars = max(max_chars, settings.max_new_tokens_limit * MAX_CHARS_PER_TOKEN)
    return Turn(role, text(f"history[{index}]", entry["content"], max_chars))


def _or(value: Any, default: Any) -> Any:
    return default if value is None or value == "" else value


def _choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidRequest(f"{name} must be one of {', '.join(choices)}.")
    return value


def _whole_number(name: str, value: Any, least: int, most: int) -> int:
    number = _number(name, value, least, most)
    if number != int(number):
        raise InvalidRequest(f"{name} must be a whole number.")
    return int(number)


def _number(name: str, value: Any, least: float, most: float) -> float:
    """Form fields carry numbers as text, so digits in a string are fine; true and false are not numbers."""
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, (int, float, str)) else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not least <= number <= most:  # also false for NaN
        raise InvalidRequest(f"{name} must be a number from {least} to {most}.")
    return number
