"""How the help of a command looks. Imported only to print one, since it takes time."""

from collections.abc import Sequence

from cyclopts.help import DefaultFormatter, HelpPanel, InlineText
from rich.console import Console, ConsoleOptions
from rich.text import Text


class HelpFormatter(DefaultFormatter):
    """Prints panels. In brief, leaves out the rarely used ones, and says how to see them."""

    def __init__(self, hidden: Sequence[str]) -> None:
        super().__init__()
        self._hidden, self._said = hidden, False

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        if str(panel.title) not in self._hidden:
            super().__call__(console, options, panel)
        elif not self._said:
            self._said = True
            console.print(Text("--help-all shows more.", style="dim"))

    def render_description(self, console: Console, _: ConsoleOptions, description: object) -> None:
        """Print the paragraphs, whose line breaks are those of the source."""
        if isinstance(description, InlineText):
            paragraphs = str(description.primary_renderable).strip().split("\n\n")
            console.print(
                *(" ".join(each.split()) for each in paragraphs), sep="\n\n", end="\n\n", markup=False
            )
