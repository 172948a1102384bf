"""Text from outside, made harmless to look at: a tensor's name must not clear a screen or reverse a sentence.

Every output passes through here once: the terminal line by line, pages and Markdown as a whole, JUnit text by text.
JSON needs nothing: all that is not ASCII is escaped there.
"""

from __future__ import annotations

import re

LONGEST = 20_000  # characters of a line on a terminal
# Controls, invisible formatting (directions among them), separators of lines, halves of pairs.
_UNSEEN = (
    "\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
)
_ANY = re.compile(f"[{_UNSEEN}]")
_BUT_LINES = re.compile(f"(?![\n\t])[{_UNSEEN}]")


def visible(text: str) -> str:
    """One line in which every character is seen: `\\u001b[2J` and not a cleared screen."""
    return _ANY.sub(_escaped, text)


def visible_lines(text: str) -> str:
    """The same for text of several lines, which stay."""
    return _BUT_LINES.sub(_escaped, text)


def shortened(text: str, longest: int = LONGEST) -> str:
    """Cut in the middle, with the number of characters that are missing."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} ... {len(text) - 2 * half:,} more characters ... {text[-half:]}"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
