"""The text of an invitation: what is read is what was written, or it is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridbot_client.net.invitation import Invitation, InvitationError

PRINTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
KEYS = st.from_regex(r"gb_join_[A-Za-z0-9_-]{20,60}", fullmatch=True)
INVITATIONS = st.builds(
    Invitation,
    st.sampled_from(["https://grid.example.org", "http://127.0.0.1:8080", "https://a.b/grid"]),
    KEYS, PRINTS, st.lists(PRINTS, max_size=5).map(tuple),
)  # fmt: skip


@given(INVITATIONS)
def test_what_is_written_is_read(invitation: Invitation) -> None:
    assert Invitation.parse(invitation.text) == invitation


@given(INVITATIONS, st.data())
def test_what_was_cut_off_is_refused_unless_a_whole_owner_was(
    invitation: Invitation, data: st.DataObject
) -> None:
    text = invitation.text
    rest = text.index(".", text.index("gb_join_")) + 1
    kept = data.draw(st.integers(rest, len(text) - 1))
    try:
        read = Invitation.parse(text[:kept])
    except InvitationError as error:
        assert str(error) == "the invitation is not whole; copy all of its line"
    else:
        assert read.owners == invitation.owners[: len(read.owners)]
        assert (read.url, read.key) == (invitation.url, invitation.key)
        assert read.project_key == invitation.project_key


@given(st.text())
def test_any_other_text_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvitationError):
        Invitation.parse(text)
