"""Help of commands, with rarely used options in a separate section."""

from typing import Any

from typer.core import TyperCommand

__all__ = ["RARE", "Command"]

RARE = "Rarely used"
"""The panel of such an option: ``typer.Option(..., rich_help_panel=RARE)``."""


class Command(TyperCommand):
    """A command whose help lists the options of each panel in a section."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments, the usual options and those of each panel.

        Args:
            ctx: ctx of the command.
            formatter: writes the help.
        """
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            usual = "Arguments" if param.param_type_name == "argument" else "Options"
            panel = getattr(param, "rich_help_panel", None) or usual
            if record is not None:
                sections.setdefault(panel, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
