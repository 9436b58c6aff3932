"""When a child that died is started again. Decides only; the supervisor acts."""

from dataclasses import dataclass

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
# A life of this length shows that the cause of earlier deaths is gone.
GOOD_LIFE_S = 60.0
# Deaths before it was ever ready: then a restart would not help.
START_TRIES = 3
# How our commands end where their settings are wrong: trying again would change nothing.
REFUSED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartState:
    """What the deaths of one child so far amount to."""

    # Deaths in a row, none after a good life.
    deaths: int = 0
    was_ready: bool = False
    # Whether it ended by itself because its settings are wrong.
    has_refused: bool = False

    def after_ready(self) -> "RestartState":
        """Return the state once the child is ready for its work."""
        return RestartState(deaths=self.deaths, was_ready=True)

    def after_death(self, *, lived_s: float, code: int = 1) -> "RestartState":
        """Return the state after a death. code: as `subprocess` gives it."""
        deaths = 1 if lived_s >= GOOD_LIFE_S else self.deaths + 1
        return RestartState(
            deaths=deaths,
            was_ready=self.was_ready,
            has_refused=code == REFUSED,
        )

    @property
    def is_hopeless(self) -> bool:
        """Whether it is of no use to start the child again."""
        return not self.was_ready and (self.has_refused or self.deaths >= START_TRIES)

    @property
    def delay_s(self) -> float:
        """Time from the last death to the next start."""
        # The exponent is bounded: floats end at 2**1024.
        doublings = min(self.deaths - 1, 20)
        return min(FIRST_DELAY_S * 2.0**doublings, LONGEST_DELAY_S)
