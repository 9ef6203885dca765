"""What the built-in functions give and take: kinds of expression that make sense there.

`?` marks an argument that may be left out, `*` one that may be repeated or left out. A `scalar`
is neither a list nor an ad: the library is known to use freed memory for those there.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridbot_policies.classad.functions import FUNCTIONS

_KNOWN = """
isUndefined bool any
isError bool any
isString bool any
isInteger bool any
isReal bool any
isBoolean bool any
isList bool any
isClassAd bool any
isAbsTime bool any
isRelTime bool any
ifThenElse any bool any any
eval any quoted
unparse string name
unresolved any name pattern?
debug any any
int number any
real number any
string string any
bool bool any
floor number number
ceil number number
ceiling number number
round number number
pow number number number
quantize number number number
sum number numbers
avg number numbers
min number numbers
max number numbers
size number list
member bool any list
identicalMember bool any list
anyCompare bool comparison list any
allCompare bool comparison list any
join string string any*
split list string delimiters?
splitUserName list slot
splitSlotName list slot
evalInEachContext list scalar ads
countMatches number bool ads
strcat string any*
toUpper string string
toLower string string
substr string string number number?
strcmp number string string
stricmp number string string
versioncmp number version version
versionLE bool version version
versionLT bool version version
versionGE bool version version
versionGT bool version version
versionEQ bool version version
version_in_range bool version version version
regexp bool pattern string options?
regexpMember bool pattern strings options?
regexps string pattern string replacement options?
replace string pattern string replacement options?
replaceall string pattern string replacement options?
stringList_regexpMember bool pattern listed delimiters? options?
stringListSize number listed delimiters?
stringListSum number listed delimiters?
stringListAvg number listed delimiters?
stringListMin number listed delimiters?
stringListMax number listed delimiters?
stringListMember bool string listed delimiters?
stringListIMember bool string listed delimiters?
stringListSubsetMatch bool listed listed delimiters?
stringListISubsetMatch bool listed listed delimiters?
stringListsIntersect bool listed listed delimiters?
argsToList list args number?
listToArgs string strings number?
envV1ToV2 string args
mergeEnvironment string args*
absTime time number number?
relTime span number
getYear number time
getMonth number time
getDayOfMonth number time
getDayOfWeek number time
getDayOfYear number time
getDays number span
getHours number time
getMinutes number time
getSeconds number span
splitTime record time
formatTime string time format?
interval string number
"""

# The clock, chance and the machine: their values cannot be compared.
LEFT_OUT = frozenset(
    ("time", "random", "currenttime", "daytime", "timezoneoffset", "userhome", "usermap")
)
# Without an argument these ask the clock.
NEVER_BARE = frozenset(("abstime", "formattime"))


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's name as documentation writes it, the kind it gives, the kinds it takes."""

    name: str
    gives: str
    takes: tuple[str, ...]


def _read(line: str) -> Signature:
    name, gives, *takes = line.split()
    return Signature(name, gives, tuple(takes))


def _all() -> tuple[Signature, ...]:
    known = {each.name.lower(): each for each in map(_read, _KNOWN.strip().splitlines())}
    unknown = {
        name: Signature(name, "any", ("any*",))
        for name in FUNCTIONS
        if name not in known and name not in LEFT_OUT
    }
    return tuple((known | unknown).values())


SIGNATURES = _all()
