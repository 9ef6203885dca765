"""What the machine's owner prefers, and beside it what the account does.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gridbot_client.preferences.decision import USUAL_DISK_BYTES
from gridbot_client.protocol.preferences import OwnerPreferences, PreferenceError

MACHINE, ACCOUNT = "this machine", "the account"


@dataclass(frozen=True, slots=True)
class Preferred:
    """Texts by name, who said each, and what the account says that does not hold here."""

    texts: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)  # why, by name

    def lines(self) -> list[str]:
        """For people."""
        said = [f"{name}={text}  ({self.origins[name]})" for name, text in self.texts.items()]
        return said + [f"not followed: {why}" for why in self.left_out.values()]


def merged(own: Mapping[str, str], account: Mapping[str, str]) -> Preferred:
    """Put them together.

    What the account says is left out where the machine's owner says something about the same, or
    where it contradicts that, or means nothing here: it comes from a server.
    """
    texts, origins, left_out = dict(own), dict.fromkeys(own, MACHINE), {}
    for name, text in sorted(account.items()):
        if name in own:
            continue
        try:
            found = OwnerPreferences.parse({**texts, name: text})
            if (found.disk or 0) > USUAL_DISK_BYTES and "disk" not in own:
                raise PreferenceError(
                    f"disk = {text!r}: only this machine's owner may lend so much"
                )
        except PreferenceError as error:
            left_out[name] = str(error)
        else:
            texts[name], origins[name] = text, ACCOUNT
    return Preferred(texts, origins, left_out)
