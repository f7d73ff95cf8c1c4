"""Find the quotes of a shell around a place in its code.

Where the text alone leaves a doubt, and behind that, the answer is :data:`UNKNOWN`.
"""

from __future__ import annotations

import re

# Quotations beside the quotes themselves and "", outside them.
COMMENT = "comment"
DOCUMENT = "here-document"
UNKNOWN = "unknown"

# A substitution without others in it, which leaves the quotation as it was. (The `)` of a `case` is no end.)
_WHOLE = (
    r"\$\((?![^\n]*\bcase\b)(?:[^()'\"`\\\#\n]|'[^'\n]*'|\"[^\"`\\(\n]*\")*\)"
    r"|\$\(\([^()'\"`\\\#\n]*\)\)"
    r"|`[^`'\"\\\#\n]*`"
)
# Commands that read their arguments as code: of a shell only with options, as a script gets them as they are.
_READER = (
    r"(?<![^\s;|&('\"])(?:[\w./-]*/)?"
    r"(?:eval(?=\s*['\"]|\s+[^\s-])|ssh(?=[\s'\"])|(?:ba|da|z|k|a|fi)?sh(?=['\"]?\s+[-+]|\s*<))"
)
# The rest of such a command up to its end.
_REST = (
    r"(?:[^\s'\"`\\;&|()<>$\#]|[^\S\n]|>(?![&|(])|\$(?![('\"])|'[^']*'"
    rf"|\"(?:[^\"`\\$]|\$(?!\()|{_WHOLE})*\"|{_WHOLE})*(?:[;|\n]|&&|&\s)"
)
_COMMENT = r"(?<![^\s;|&()])\#"
_DOCUMENT = r"<<-?[^\S\n]*(?P<q{0}>['\"]?)(?P<end{0}>\w+)(?P=q{0})[^\n'\"`\\\#<(]*\n"
# What is over, and then leaves the quotation as it was.
_ENDED = (
    rf"\\.|<<<|{_READER}{_REST}|{_COMMENT}[^\n]*\n"
    rf"|{_DOCUMENT.format(1)}(?:[^\n]*\n)*?\t*(?P=end1)\n|{_WHOLE}"
)
# By the quotation: what is skipped, and groups that lead to another quotation.
_TOKENS = {
    "": re.compile(
        rf"{_ENDED}|(?P<quote>['\"])|(?P<comment>{_COMMENT})|(?P<document>{_DOCUMENT.format(2)})"
        rf"|(?P<unknown>`|\$[('\"]|<<|{_READER})",
        re.DOTALL,
    ),
    '"': re.compile(rf'\\.|{_WHOLE}|(?P<quote>")|(?P<unknown>`|\$\(|{_READER})', re.DOTALL),
    "'": re.compile(rf"(?P<quote>')|(?P<unknown>{_READER})"),
}


def quotation_at(code: str, place: int) -> str:
    """Return the quotes around this place of a shell's code: "" for none, ' or ", or a name above."""
    quote, start = "", 0
    while token := _TOKENS[quote].search(code, start, place):
        start = token.end()
        if token["unknown"] is not None:
            return UNKNOWN
        if not quote and (token["comment"] or token["document"]):
            return COMMENT if token["comment"] else DOCUMENT
        if token["quote"]:
            quote = "" if quote else token["quote"]
    return quote
