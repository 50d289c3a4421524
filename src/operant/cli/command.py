"""What people type who know other libraries and commands: answered with what it is here."""

from __future__ import annotations

import warnings
from typing import Any

from typer.core import TyperCommand, TyperGroup

from operant.cli.screen import UserError


class Commands(TyperGroup):
    """The commands; ``operant help`` and ``operant version`` are options here."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See `click.Group`.

        Raises:
            UserError: an option that was typed as a command.
        """
        if args[0] == "help":
            command = " ".join(["operant", *args[1:2], "--help"])
            raise UserError(f"there is no command 'help'; write {command}")
        if args[0] == "version":
            raise UserError("there is no command 'version'; write operant --version")
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """A command that knows ``--lr``, ``--n-envs`` and ``--gamma``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `click.Command`.

        Raises:
            UserError: an option that has another name here, or a setting with spaces.
        """
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # Typer's click, or its own copy of it
            option = getattr(error, "option_name", "")
            if type(error).__name__ == "NoSuchOption" and (write := self._instead(option)):
                raise UserError(f"there is no option {option}; here it is {write}") from None
            if type(error).__name__ == "UsageError" and "--set" in words:
                raise UserError(
                    "--set takes one word, name=value without spaces, such as --set ppo.gamma=0.98"
                ) from None
            raise

    def _instead(self, option: str) -> str:
        """What to write for an option that there is not; empty if nobody knows it."""
        from operant.ppo.config import Config

        name = option.lstrip("-").replace("-", "_")
        if name == "env":
            return f"operant {self.name} ENV, without --env"
        known = Config.elsewhere().get(name, "").partition(":")[0]
        if not known:
            try:
                with warnings.catch_warnings(action="ignore"):
                    known = Config.dotted_name(name)
            except ValueError:
                return ""
        switch = "--" + known.rpartition(".")[2].replace("_", "-")
        there = any(switch in parameter.opts for parameter in self.params)
        return switch if there else f"--set {known}=..."
