"""The Triton kernels of one environment, as source: a program steps a block of environments.

The rules are printed as recorded (`compiler.emit.triton_program`), in one loop body with everything
else a step needs, so that a step reads its state once and writes its results once:

- ``step``: one or several steps; between them the state stays in registers. Finished environments
  are reset in the same launch.
- ``reset``: begins episodes of chosen environments.
- ``observe``: observations and masks of everyone.

Kernels are compiled without fused multiply-adds, so that they round as NumPy does: steps and resets
agree with the ``reference`` backend to the bit. A step waits for memory, not for arithmetic.
"""

from __future__ import annotations

from textwrap import indent

from operant.compiler.emit.triton_program import program_source
from operant.compiler.emit.triton_text import (
    NOW,
    RECORD,
    begun,
    drawn,
    handed_out,
    header,
    keep_row,
    kept_row,
    obs_names,
    observed,
    parameters,
    pointers,
    program_inputs,
    recorded,
    state_loads,
    stored_masks,
    stored_obs,
    stored_record,
    stored_rows,
)
from operant.compiler.recording.trace import BOOL, FLOAT, INT
from operant.compiler.spec.rules import TracedRules

_MEMORY = (
    "num_envs, stride, constants, floats, ints, flags, records, obs, reward, terminated,\n"
    "    truncated, action_mask"
)
"""Arguments of every kernel. Rows of `floats`, `ints` and `flags` are `stride` apart."""


def kernels_source(rules: TracedRules, version: str) -> str:
    """The whole module; equal rules give equal text."""
    return "".join([header(rules, version), _step(rules), _reset(rules), _observe(rules)])


def _kernel(name: str, arguments: str, doc: str, body: list[str]) -> str:
    head = f'\n\n@triton.jit(do_not_specialize=["host_ns"])\ndef {name}(\n    {_MEMORY},\n    '
    end = "    BLOCK: tl.constexpr, WIDE: tl.constexpr, KEEP: tl.constexpr, PASS: tl.constexpr,"
    return (
        f'{head}{arguments},\n{end}\n):\n    """{doc}"""\n' + indent("\n".join(body), "    ") + "\n"
    )


def _step(rules: TracedRules) -> str:
    arguments = (
        "action, final_obs, report, bad, clock, max_steps, host_ns, STEPS: tl.constexpr,\n"
        "    MODE: tl.constexpr, REPORT: tl.constexpr, HOST_CLOCK: tl.constexpr,\n"
        "    BRANCH: tl.constexpr, OVERLAP: tl.constexpr"
    )
    doc = (
        "Take STEPS steps; MODE 0: NEXT_STEP, 1: SAME_STEP, 2: DISABLED.\n\n"
        "    Episodes that end are also written to `report` if REPORT. An action that is not\n"
        "    valid sets `bad`; `clock` is set to the time.\n"
        "    BRANCH: leave out what resets need where nobody finished, for large batches.\n"
        "    OVERLAP: programs start while the kernel before ends, and wait for it.\n    "
    )
    body = [
        *pointers(rules),
        *parameters(rules, rules.step, rules.reset, rules.observe, rules.mask),
        "if OVERLAP:",
        "    tl.extra.cuda.gdc_launch_dependents()",
        "now = ticks(host_ns, HOST_CLOCK)",
        "if OVERLAP:",
        "    tl.extra.cuda.gdc_wait()",
        *state_loads(rules),
        f"s__steps = {kept_row('steps')}",
        f"s__return = {kept_row('episode_return')}",
        "s__done = tl.zeros([BLOCK], tl.int1)",
        "if MODE != 1:",
        "    s__done = tl.load(done + i, mask=here, other=0) != 0",
        "    tl.store(clock + tl.zeros([BLOCK], tl.int32), now, mask=i == 0)",
        "wrong = tl.zeros([BLOCK], tl.int1)",
        "for _ in range(STEPS):",
        indent("\n".join(_one_step(rules)), "    "),
        *[keep_row(f"state_{name}", f"s_{name}") for name in rules.fields],
        keep_row("steps", "s__steps"),
        keep_row("episode_return", "s__return"),
        keep_row("done", "s__done"),
        "tl.store(bad + tl.zeros([BLOCK], tl.int32), 1, mask=wrong)",
    ]
    return _kernel("step", arguments, doc, body)


def _one_step(rules: TracedRules) -> list[str]:
    """The body of the loop over steps."""
    lines = _actions(rules)
    if rules.step_draws:
        lines += _stream("here")
    lines += ["if not BRANCH:  # fetched while the step is computed"]
    lines += [f"    {line}" for line in _rare(rules, "here")]
    begun_again = indent("\n".join(_begun_again(rules)), "    ")
    lines += ["if MODE == 0 and BRANCH:  # fetched at once, as many wait for memory", begun_again]
    lines += drawn("u", rules.step_draws, "s__steps + 1", "episode - 1")
    computed, outputs = program_source(rules.step, program_inputs(rules.step, "s"), "v")
    lines += [*computed, "if MODE == 0 and not BRANCH:", begun_again]
    lines += [f"n_{name} = {text}" for name, text in zip(rules.fields, outputs, strict=False)]
    names = [*rules.fields, "_steps", "_return"]  # no field begins so
    lines += [
        f"gained = {outputs[-2]}",
        f"over = {outputs[-1]}",
        "n__steps = s__steps + 1",
        "n__return = s__return + gained",
        "late = n__steps >= max_steps",
        "if MODE != 1:",
        "    gained = tl.where(s__done, 0.0, gained)",
        "    over = over & ~s__done",
        "    late = late & ~s__done",
        "ended = (over | late) & here",
        handed_out("reward + row", "gained", "here"),
        handed_out("terminated + row", "over", "here"),
        handed_out("truncated + row", "late", "here"),
        "if MODE == 0:",
        *[f"    n_{name} = tl.where(s__done, r_{name}, n_{name})" for name in rules.fields],
        "    n__steps = tl.where(s__done, 0, n__steps)",
        "    n__return = tl.where(s__done, 0.0, n__return)",
        "if MODE == 2:",
        *[f"    n_{name} = tl.where(s__done, s_{name}, n_{name})" for name in names],
        *observed(rules, "n", "o", "o"),
        "if MODE == 1 or REPORT:",
        indent("\n".join(_ended(rules)), "    "),
        "s__done = s__done | ended if MODE == 2 else ended",
        *stored_obs(rules, "obs", "o", "here"),
        *stored_masks(rules, "n", "here"),
        *[f"s_{name} = n_{name}" for name in names],
        "row += num_envs",
    ]
    return lines


def _rare(rules: TracedRules, which: str) -> list[str]:
    """Load what the end of an episode and the next one's beginning need."""
    return recorded(which, "start") + ([] if rules.step_draws else _stream(which))


def _stream(which: str) -> list[str]:
    """Load the random streams of `which`; where a thread has one environment, four words at once,
    else the rearranged words cost more than is won."""
    return [
        "if BRANCH:",
        *[f"    {line}" for line in recorded(which, *RECORD[4:])],
        "else:",
        "    places = record[:, None] + 4 + tl.arange(0, 4)[None, :]",
        f"    words = tl.load(places, mask={which}[:, None], other=0)",
        "    even, odd = tl.split(tl.reshape(words, [BLOCK, 2, 2]))",
        "    episode, seed_low = tl.split(even)",
        "    index, seed_high = tl.split(odd)",
    ]


def _some(which: str) -> str:
    return f"some = tl.max({which}.to(tl.int32), 0) > 0 if BRANCH else True"


def _begun_again(rules: TracedRules) -> list[str]:
    """New episodes of those that finished in the step before: ``r_<field>``."""
    zero = {FLOAT: "tl.float32", INT: "tl.int32", BOOL: "tl.int1"}
    return [
        "fresh = s__done & here",
        *[f"r_{name} = tl.zeros([BLOCK], {zero[kind]})" for name, kind in rules.fields.items()],
        _some("fresh"),
        "if some:",
        "    if BRANCH:",
        *[f"        {line}" for line in _rare(rules, "fresh")],
        indent("\n".join(begun(rules)), "    "),
        "    " + stored_record("fresh", "episode", "episode + 1"),
        "    " + stored_record("fresh", "start", NOW),
    ]


def _ended(rules: TracedRules) -> list[str]:
    """Report the episodes that ended, and begin new ones in the same step."""
    return [
        _some("ended"),
        "if some:",
        "    if BRANCH:",
        *[f"        {line}" for line in _rare(rules, "ended")],
        "    if REPORT:",
        indent("\n".join(_reported()), " " * 8),
        "    if MODE == 1:",
        indent("\n".join(_reset_some(rules)), " " * 8),
    ]


def _reported() -> list[str]:
    """Write return, length and seconds of the episodes that ended."""
    values = [
        "n__return",
        "n__steps.to(tl.float32, bitcast=True)",
        "seconds(now, start)",
        "tl.zeros([BLOCK], tl.float32)",
    ]
    return stored_rows("report + row * 4", values, "ended")


def _reset_some(rules: TracedRules) -> list[str]:
    """Begin new episodes of those that ended, of which there are some."""
    record = [
        "n__return.to(tl.int32, bitcast=True)",
        "n__steps",
        "seconds(now, start).to(tl.int32, bitcast=True)",
        NOW,
    ]
    return [
        *stored_rows("record", record, "ended"),
        *stored_obs(rules, "final_obs", "o", "ended"),
        *begun(rules),
        stored_record("ended", "episode", "episode + 1"),
        *observed(rules, "r", "e", "e"),
        *[f"n_{name} = tl.where(ended, r_{name}, n_{name})" for name in rules.fields],
        *[
            f"{after} = tl.where(ended, {new}, {after})"
            for after, new in zip(obs_names(rules, "o"), obs_names(rules, "e"), strict=True)
        ],
        "n__steps = tl.where(ended, 0, n__steps)",
        "n__return = tl.where(ended, 0.0, n__return)",
    ]


def _actions(rules: TracedRules) -> list[str]:
    """Load the actions; those out of range become the nearest valid one."""
    layout = rules.action
    lines = []
    for k in range(layout.size):
        other = layout.low[k] if layout.dtype == INT else 0
        load = (
            f"a_{k} = tl.load(action + row * {layout.size} + {k}, mask=here, other={other}, "
            "eviction_policy=PASS)"
        )
        if layout.dtype == INT:
            low, high = layout.low[k], layout.high[k]
            lines += [
                load,
                f"wrong = wrong | (a_{k} < {low}) | (a_{k} >= {high})",
                f"a_{k} = tl.minimum(tl.maximum(a_{k}, {low}), {high - 1}).to(tl.int32)",
            ]
        else:
            lines += [load, f"wrong = wrong | ((a_{k} - a_{k}) != 0.0)"]
    return lines


def _reset(rules: TracedRules) -> str:
    body = [
        *pointers(rules),
        *parameters(rules, rules.reset, rules.observe, rules.mask),
        "fresh = tl.load(chosen + i, mask=here, other=0) != 0",
        "now = ticks(host_ns, HOST_CLOCK)",
        *recorded("fresh", *RECORD[4:]),
        *begun(rules),
        stored_record("fresh", "episode", "episode + 1"),
        stored_record("fresh", "start", NOW),
        *[f"tl.store(state_{name} + i, r_{name}, mask=fresh)" for name in rules.fields],
        *[
            f"tl.store({name} + i, 0, mask=fresh)"
            for name in ("steps", "episode_return", "done", "reward", "terminated", "truncated")
        ],
        *observed(rules, "r", "o", "o"),
        *stored_obs(rules, "obs", "o", "fresh"),
        *stored_masks(rules, "r", "fresh"),
    ]
    doc = "Begin the next episode of the environments in `chosen`."
    arguments = "chosen, host_ns, HOST_CLOCK: tl.constexpr"
    return _kernel("reset", arguments, doc, body)


def _observe(rules: TracedRules) -> str:
    body = [
        *pointers(rules),
        *parameters(rules, rules.observe, rules.mask),
        *state_loads(rules),
        *observed(rules, "s", "o", "o"),
        *stored_obs(rules, "obs", "o", "here"),
        *stored_masks(rules, "s", "here"),
    ]
    doc = "Write observations and masks from the states."
    return _kernel("observe", "host_ns", doc, body)
