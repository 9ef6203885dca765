import pytest
from tests.unit.boinc.test_request import GPUS, bare, with_host

from gridbot_server.boinc.protocol.tags import Grammar, kept, read

GRAMMAR = Grammar(root="r", inside={"r": ("a", "b"), "a": ("c",)}, raw=frozenset({"raw"}))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<a><x>1</x></a>", ["1"]),
        ("<a><x>1</x><a><x>2</x></a>", ["1", "2"]),
        ("<a><x>1</x><b><x>3</x></b>", ["1"]),
        ("</a><a><x>1</x></a></a><a/>", ["1"]),
        ("<a><c><x>3</x></c><x>1</x></a>", ["1"]),
        ("<raw><a></raw><a><raw></a></raw><x>1</x></a>", ["1"]),
        ("", []),
    ],
)
def test_an_element_ends_at_its_end_or_where_the_next_one_begins(
    text: str, found: list[str]
) -> None:
    part = read(f"<r>{text}</r>", GRAMMAR)
    assert [item.text("x") for item in part.all("a")] == found
    assert part.count("a") == len(found)


def test_what_stands_on_either_side_of_an_element_makes_no_tag_together() -> None:
    part = read("<r><raw>mine</raw><ra<a></a>w>0</raw><x<b></b>>1</x></r>", GRAMMAR)
    assert part.raws("raw") == ["mine"]
    assert part.text("x") == ""


def test_only_short_texts_are_remembered() -> None:
    read_texts = []

    @kept
    def meaning(text: str) -> int:
        read_texts.append(text)
        return len(text)

    short, long = "s" * 6000, "l" * 6001
    assert [meaning(text) for text in (short, long) * 2] == [6000, 6001] * 2
    assert read_texts == [short, long, long]


def test_what_changes_in_a_text_that_is_else_the_same_is_read_anew() -> None:
    free = [with_host(f"<p_ncpus>4</p_ncpus><d_free>{size}</d_free>").disk for size in (5, 6)]
    wanted = [bare(GPUS.replace("<req_secs>10", f"<req_secs>{n}")).gpus[0].wanted for n in (7, 8)]
    assert [item.free_bytes for item in free] == [5, 6]
    assert [item.seconds for item in wanted] == [7, 8]
