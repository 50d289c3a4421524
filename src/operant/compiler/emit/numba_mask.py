"""Which actions a state allows, as source for Numba.

A mask is rounded as NumPy does, also after a step: it is then a function of the state alone, the
same on every backend and after `set_state`.
"""

from __future__ import annotations

from operant.compiler.emit.numba_arguments import MASK_SCOPES, inputs, read
from operant.compiler.emit.numba_program import program_source
from operant.compiler.recording.trace import Program
from operant.compiler.spec.rules import TracedRules


def mask_function(rules: TracedRules) -> str:
    """``write_mask`` writes the mask of environment i from its state; empty without a mask."""
    if rules.mask is None:
        return ""
    names = {name: name for name in rules.mask.inputs}
    lines, outputs = program_source(rules.mask, names, "m_", "_exact")
    reads = []
    for name, buffer in _sources(rules.mask).items():
        if name.startswith("s_"):
            text = f"load({MASK_SCOPES}.{buffer}, {buffer}, i)"
            reads.append(f"{name} = {read(rules, name.removeprefix('s_'), text)}")
    stores = [
        f"store({MASK_SCOPES}.action_mask, action_mask, {len(outputs)} * i + {k}, {output})"
        for k, output in enumerate(outputs)
    ]
    head = f"\n@njit(**EXACT)\ndef {_call(rules.mask)}:"
    return "\n    ".join([head, *reads, *lines, *stores]) + "\n"


def mask_lines(rules: TracedRules) -> list[str]:
    """Write the mask of environment i, whose state is in its buffers; nothing without a mask."""
    return [] if rules.mask is None else [_call(rules.mask)]


def mask_loop(rules: TracedRules) -> str:
    """Write the masks of environments lo..hi; empty without a mask.

    A loop of its own, so that the arithmetic of a step is vectorised however many actions there
    are: each is a byte to store apart from its neighbour's.
    """
    return "".join(f"for i in range(lo, hi):\n    {line}\n" for line in mask_lines(rules))


def _call(mask: Program) -> str:
    return f"write_mask({', '.join(['i', 'action_mask', *_sources(mask).values()])})"


def _sources(mask: Program) -> dict[str, str]:
    """The inputs that a mask uses, and the buffers or parameters where they are found."""
    used = {arg for node in mask.nodes for arg in node.args} | set(mask.outputs)
    names = [str(node.value) for k, node in enumerate(mask.nodes) if k in used]
    return {name: text for name, text in inputs(mask, s="state_{}").items() if name in names}
