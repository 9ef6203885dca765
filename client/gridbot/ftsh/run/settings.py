"""Settings of the shell, from the environment: ftsh's variables, which nested shells inherit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gridbot.reliable import BackOff

_CHILDREN_EARLIER = 5  # seconds by which a nested shell kills earlier than the one around it
KILL_MODES = ("strong", "weak")


@dataclass(frozen=True)
class ShellSettings:
    """How programs are ended, how long it waits between attempts, and where the log goes."""

    grace: int = 30  # seconds between SIGTERM and SIGKILL
    insists: bool = True
    back_off: BackOff = field(default_factory=BackOff)
    log_file: str = ""
    log_level: int = 10
    has_decimal_times: bool = False

    def exported(self) -> dict[str, str]:
        """Variables by which a nested shell has the same settings."""
        found = {
            "FTSH_LOG_LEVEL": str(self.log_level),
            "FTSH_KILL_TIMEOUT": str(max(0, self.grace - _CHILDREN_EARLIER)),
            "FTSH_KILL_MODE": KILL_MODES[not self.insists],
        }
        if self.log_file:
            found["FTSH_LOG_FILE"] = self.log_file
        if self.has_decimal_times:
            found["FTSH_LOG_DECIMAL"] = ""
        return found


def settings_of(environment: Mapping[str, str]) -> ShellSettings:
    """Settings that an environment says.  Raises ValueError for what is no number or mode."""
    usual = ShellSettings()
    grace = _number(environment, "FTSH_KILL_TIMEOUT", usual.grace)
    return ShellSettings(
        grace=grace,
        insists=insists(environment.get("FTSH_KILL_MODE", "strong")),
        back_off=BackOff(
            least=_number(environment, "FTSH_EXPMIN", 1),
            most=_number(environment, "FTSH_EXPMAX", 3600),
            factor=_number(environment, "FTSH_EXPFACTOR", 2),
            spread=1.0 if _number(environment, "FTSH_EXPRAND", 1) else 0.0,
        ),
        log_file=environment.get("FTSH_LOG_FILE", ""),
        log_level=_number(environment, "FTSH_LOG_LEVEL", usual.log_level),
        has_decimal_times="FTSH_LOG_DECIMAL" in environment,
    )


def insists(mode: str) -> bool:
    """Whether programs are killed until they are dead.  Raises ValueError for no mode."""
    if mode not in KILL_MODES:
        raise ValueError(f"kill mode {mode!r} is neither strong nor weak")
    return mode == "strong"


def _number(environment: Mapping[str, str], name: str, usual: int) -> int:
    text = environment.get(name, str(usual))
    if not text.isdecimal() or len(text) > 9:
        raise ValueError(f"{name}: {text!r} is no whole number")
    return int(text)
