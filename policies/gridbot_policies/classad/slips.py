"""What people write who know another language: what to write instead, for an error's message."""

from __future__ import annotations

import re

# What stands where the text goes wrong, and what it should have been; the first that fits.
_HERE = tuple(
    (re.compile(pattern, re.IGNORECASE), advice)
    for pattern, advice in (
        (r"and\b", "write && for and"),
        (r"or\b", "write || for or"),
        (r"not\s+in\b", "write !member(value, list) for not in"),
        (r"not\b", "write ! for not"),
        (r"in\b", "write member(value, list) for in"),
        (r"(like|matches)\b|=~", "write regexp(pattern, text) to match a pattern"),
        (r"mod\b", "write % for mod"),
        (r"(then|else)\b", "write condition ? value : other for if, then and else"),
        (r"=>", "write >= for =>"),
        (r"=<", "write <= for =<"),
        (r"=\s*[?!]|=(?![=?!])", "write == to compare"),
        (r":=", "write = to define an attribute"),
        (r"[\u2018-\u201e\u00ab\u00bb`]", 'write strings in straight quotes, "text"'),
        (r"[\u2010-\u2015\u2212]", "write - for the dash"),
        (r"[\u00d7\u2264\u2265\u2260]", "operators are * / <= >= == !="),
        (r"!\s+=", "write != without a space"),
        (r",\s*[a-z_]\w*\s*=(?![=?!])", "write ; between definitions"),
        (r":(?!=)", "attributes are written [name = value]"),
        (r"#", "comments begin with //"),
        (r"\$\(", "only submit files know $(NAME)"),
        (r"([0-9.]+[kmgt]b?|[kmgt]i?b)\b", "write sizes in full, 5 * 1024 for 5K"),
        (r"0[0-9]+\b", "leave out the zero in front"),
        (r"0x", "write the number in decimal digits"),
        (r"[0-9]+\.", "write a digit after the point, 1.0"),
        (r"(true|false|undefined|error|is|isnt)\b", "in single quotes it is a name: '{0}'"),
        (r"[a-z_]\w*\s*=(?![=?!])", "write ; between definitions"),
    )
)
# The same by what stands before.
_BEFORE = tuple(
    (re.compile(pattern + r"\s*\Z", re.IGNORECASE), advice)
    for pattern, advice in (
        (r"\bnot", "write ! for not"),
        (r"\bif", "write condition ? value : other for if, then and else"),
        (r"\*\*", "write pow(base, exponent) for **"),
        (r"<>", "write != for <>"),
        (r"=>", "write >= for =>"),
        (r"[^=!<>]=<", "write <= for =<"),
        (r"===", "write == or, where undefined and case matter, =?="),
        (r"!==", "write != or, where undefined and case matter, =!="),
    )
)

_DEFINES = re.compile(r"\s*(\[|[\w']+\s*=[^=?!])")


def advice_at(text: str, offset: int) -> str:
    """Return what to write instead of what stands at `offset`; "" if nobody can tell."""
    before = text[max(0, offset - 40) : offset + 1]
    for pattern, advice in _BEFORE:
        if pattern.search(before[:-1]) or pattern.search(before):
            return advice
    here = text[offset : offset + 60]
    for pattern, advice in _HERE:
        if found := pattern.match(here):
            return advice.format(found[0])
    if re.match(r";\s*\Z", here) and not _DEFINES.match(text):
        return "one expression by itself ends without ;"
    if re.search(r",\s*\Z", before[:-1]) and here[:1] in ("", ")", "}", "]"):
        return "leave out the last ,"
    return ""
