"""The closed forms of `operant.ppo.closed_form`, for Numba functions; each returns a tuple."""

from __future__ import annotations

from operant.compiler.emit.llvm_program import formula
from operant.lang import words
from operant.ppo import closed_form


def _exp(x: object) -> object:
    return words.exp(x)


exp = formula(_exp)
surrogate, value_error = formula(closed_form.surrogate), formula(closed_form.value_error)
choice, choice_slope = formula(closed_form.choice), formula(closed_form.choice_slope)
gaussian, gaussian_sample = formula(closed_form.gaussian), formula(closed_form.gaussian_sample)
log_total = formula(closed_form.log_total)
