"""What `turnmill up` says: its own sentences, and the lines of its children under their names."""

import click

from cli.lines import Line

COLOURS = ("cyan", "magenta", "yellow", "green", "blue")
NAME_WIDTH = 9


class Terminal:
    """The terminal. Colours are left out where the output is none.

    A terminal that is gone is no reason to fail: the children still have to be stopped in order.
    """

    def __init__(self, *, is_verbose: bool) -> None:
        self.is_verbose = is_verbose
        self._colours: dict[str, str] = {}

    def show(self, text: str) -> None:
        """Write text to standard output."""
        self._write(text, is_error=False)

    def say(self, sentence: str) -> None:
        """Write a sentence about what happens to standard error."""
        self._write(f"turnmill: {sentence}", is_error=True)

    def show_line(self, name: str, line: Line) -> None:
        """Write a child's line to standard error, under the child's name."""
        colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        label = click.style(f"{name:{NAME_WIDTH}}|", fg=colour)
        for text in line.text.splitlines() or [""]:
            self._write(f"{label} {text}", is_error=True)

    def _write(self, text: str, *, is_error: bool) -> None:
        try:
            click.echo(text, err=is_error)
        except (OSError, UnicodeError):
            return
