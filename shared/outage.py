"""Saying once that a part is away, and once that it is back, however many notice."""

import structlog

log = structlog.get_logger()


class Outage:
    """Whether a part is away, as one process sees it."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._is_away = False

    def begin(self, error: Exception) -> None:
        """Note that the part could not be used."""
        if not self._is_away:
            self._is_away = True
            log.warning("part_away", part=self._part, error=type(error).__name__)

    def end(self) -> None:
        """Note that the part could be used."""
        if self._is_away:
            self._is_away = False
            log.warning("part_back", part=self._part)
