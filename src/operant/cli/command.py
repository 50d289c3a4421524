"""Options as other libraries call them: answered with ours."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from operant.cli.screen import UserError


class Command(TyperCommand):
    """A command that knows what people type who know other libraries: ``--lr``, ``--n-envs``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `click.Command`.

        Raises:
            UserError: an option that has another name here.
        """
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", "")  # Typer's click, or its own copy of it
            if type(error).__name__ != "NoSuchOption":
                raise
            from operant.ppo.config import Config

            known = Config.elsewhere().get(option.lstrip("-").replace("-", "_"))
            if known is None:
                raise
            name = known.partition(":")[0]
            switch = "--" + name.rpartition(".")[2].replace("_", "-")
            there = any(switch in parameter.opts for parameter in self.params)
            write = switch if there else f"--set {name}=..."
            raise UserError(f"there is no option {option}; here it is {write}") from None
