"""`random`, and an action of several components, while a function is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from operant.lang.advice import fail

_DRAWS = {
    "chance": "random[0] < p",
    "choice": "randint(random[0], n), and where() to choose by it",
    "gauss": "normal(random[0], random[1])",
    "integers": "randint(random[0], n)",
    "normal": "normal(random[0], random[1])",
    "normalvariate": "normal(random[0], random[1])",
    "permutation": "randint(random[k], n) for each place",
    "rand": "random[0]",
    "randint": "randint(random[0], n)",
    "randn": "normal(random[0], random[1])",
    "random": "random[0]",
    "randrange": "randint(random[0], n)",
    "shuffle": "randint(random[k], n) for each place",
    "standard_normal": "normal(random[0], random[1])",
    "uniform": "uniform(random[0], low, high)",
}
"""What to write for the methods of other random generators, and of states of arrays."""


_OF_ARRAYS = ("chance", "integers", "normal", "uniform")


class Several(tuple[Any, ...]):
    """A tuple of symbols that says what to write where one number was meant.

    Python's own answers speak of tuples, and ``action == 1`` would be False without a word.
    """

    name: str
    more: str
    """What to change for more of them, with ``{count}`` for how many."""

    @classmethod
    def of(cls, name: str, values: Sequence[Any], more: str) -> Several:
        """`values` as the argument called `name`."""
        found = cls(values)
        found.name, found.more = name, more
        return found

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except IndexError:
            pass
        count = f"{len(self)} number{'s' * (len(self) != 1)}"
        known = f"{self.name}[0] to {self.name}[{len(self) - 1}]" if len(self) > 1 else "[0] alone"
        known = f", {known}" if len(self) else ""
        index = int(key)
        wanted = index + 1 if index >= 0 else -index
        fail(
            f"{self.name}[{index}] does not exist: {self.name} holds {count}{known}; "
            f"{self.more.format(count=wanted)}"
        )

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):  # Python and NumPy ask for these
            raise AttributeError(attribute)
        if self.name == "random" and attribute not in ("dtype", "program", "index"):
            better = _DRAWS.get(attribute, "random[0]")
            arrays = " (that is for states of arrays)" if attribute in _OF_ARRAYS else ""
            fail(
                f"random has no {attribute}() here{arrays}: it is a tuple of {len(self)} uniform "
                f"numbers in [0, 1); write {better}"
            )
        self._is_one_number()

    def _is_one_number(self, *values: object) -> NoReturn:
        numbers = f"{len(self)} number{'s' * (len(self) != 1)}"
        fail(f"{self.name} is a tuple of {numbers}, not a number; write {self.name}[0]")

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) if isinstance(other, tuple) else self._is_one_number()

    def __ne__(self, other: object) -> bool:
        return super().__ne__(other) if isinstance(other, tuple) else self._is_one_number()

    __hash__ = tuple.__hash__

    def __add__(self, other: Any) -> Any:
        return super().__add__(other) if isinstance(other, tuple) else self._is_one_number()

    def __mul__(self, other: Any) -> Any:
        return super().__mul__(other) if isinstance(other, int) else self._is_one_number()

    def __rmul__(self, other: Any) -> Any:
        return super().__rmul__(other) if isinstance(other, int) else self._is_one_number()

    def __lt__(self, other: Any) -> bool:
        return super().__lt__(other) if isinstance(other, tuple) else self._is_one_number()

    def __le__(self, other: Any) -> bool:
        return super().__le__(other) if isinstance(other, tuple) else self._is_one_number()

    def __gt__(self, other: Any) -> bool:
        return super().__gt__(other) if isinstance(other, tuple) else self._is_one_number()

    def __ge__(self, other: Any) -> bool:
        return super().__ge__(other) if isinstance(other, tuple) else self._is_one_number()


for _name in ("radd", "sub", "rsub", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod"):
    setattr(Several, f"__{_name}__", Several._is_one_number)
for _name in ("pow", "rpow", "neg", "abs", "and", "rand", "or", "ror", "float", "int", "index"):
    setattr(Several, f"__{_name}__", Several._is_one_number)
for _name in ("bool", "call", "round", "invert"):
    setattr(Several, f"__{_name}__", Several._is_one_number)
