"""The rollout kernel of one environment and one policy, as source.

A program plays a block of environments for all steps of a rollout. State, random streams and the
networks' weights stay on the chip: a step reads nothing from memory and writes its sample there.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

from operant.compiler.emit.triton_program import program_source
from operant.compiler.emit.triton_text import (
    RECORD,
    begun,
    drawn,
    header,
    joined,
    keep_row,
    kept_row,
    obs_names,
    observed,
    parameters,
    pointers,
    program_inputs,
    recorded,
    state_loads,
    stored_obs,
    stored_record,
    stored_rows,
)
from operant.compiler.philox import POLICY_BLOCK
from operant.compiler.recording.trace import FLOAT
from operant.compiler.spec.rules import TracedRules
from operant.ppo.kernels.triton.networks import Network, Networks

_HEADER = """
from operant.ppo.kernels.triton.inputs import normalize
from operant.ppo.kernels.triton.layers import activate, matrix, product, vector
from operant.ppo.kernels.triton.loss import log_softmax
from operant.ppo.kernels.triton.sampling import gaussian, limited, pick, policy_uniforms
"""
_ARGUMENTS = """\
    num_envs, stride, constants, floats, ints, flags, records, obs, reward, terminated,
    truncated, action_mask, action, log_prob, value, final_value, final_obs, report, low, full,
    statistics, one_hot, parts, firsts, bounds, hints, first_step, policy_low, policy_high,
    max_steps, host_ns, STEPS: tl.constexpr, ACTIVATION: tl.constexpr, QUICK: tl.constexpr,
    PRECISION: tl.constexpr, LIMIT: tl.constexpr, HOST_CLOCK: tl.constexpr, BLOCK: tl.constexpr,
    WIDE: tl.constexpr, KEEP: tl.constexpr, PASS: tl.constexpr,
"""


@dataclass(frozen=True)
class Acting:
    """How a policy acts: what the text depends on, besides the environment's rules."""

    networks: Networks
    outputs: int
    """Columns of the actor's head."""
    sizes: tuple[int, ...]
    """Categories of each part of a discrete action; empty for a continuous one."""
    starts: tuple[int, ...]
    """What they are numbered from."""
    numbers: int
    """Numbers of an action that are drawn from normal distributions; 0 for discrete actions."""
    by_state: bool
    """Whether their deviations are outputs of the network."""
    one_hot: bool


def rollout_source(rules: TracedRules, acting: Acting, version: str) -> str:
    """The module with the kernel ``rollout``; equal arguments give equal text."""
    body = [
        *pointers(rules),
        *parameters(rules, rules.step, rules.reset, rules.observe, rules.mask),
        "now = ticks(host_ns, HOST_CLOCK)",
        *_weights("a", acting.networks.actor),
        *([] if acting.networks.shared else _weights("c", acting.networks.critic)),
        *_columns(acting),
        *state_loads(rules),
        f"s__steps = {kept_row('steps')}",
        f"s__return = {kept_row('episode_return')}",
        *recorded("here", *RECORD[3:]),
        "ended = tl.zeros([BLOCK], tl.int1)",
        *observed(rules, "s", "o", "o"),
        *stored_obs(rules, "obs", "o", "here"),
        *_allowed(rules, "s", "action_mask"),
        *_hinted(rules, "tl.zeros([BLOCK], tl.float32)"),
        "for t in range(STEPS):",
        indent("\n".join(_one_step(rules, acting)), "    "),
        *_inputs(rules, acting, "o"),
        *_value(acting),
        "tl.store(value + row, v, mask=here)",
        "hint = tl.where(here, hint, 0.0)",
        "tl.store(hints + tl.program_id(0), tl.sum(hint, 0))",
        *[keep_row(f"state_{name}", f"s_{name}") for name in rules.fields],
        keep_row("steps", "s__steps"),
        keep_row("episode_return", "s__return"),
        keep_row("done", "ended"),
        stored_record("here", "episode", "episode"),
        stored_record("here", "start", "start"),
    ]
    doc = "Play STEPS steps."
    head = '\n\n@triton.jit(do_not_specialize=["host_ns", "policy_low", "policy_high"])\n'
    kernel = f'{head}def rollout(\n{_ARGUMENTS}):\n    """{doc}"""\n'
    return "".join([header(rules, version), _HEADER, kernel, indent("\n".join(body), "    "), "\n"])


# The policy ---------------------------------------------------------------------------------------
def _weights(name: str, net: Network) -> list[str]:
    """Load a network: ``<name>_w<k>`` and ``<name>_b<k>``; its head is the last."""
    rows, lines = net.inputs, []
    sizes = (*net.widths, net.head)
    for k, (size, at, bias) in enumerate(zip(sizes, net.matrices, net.biases, strict=True)):
        lines.append(f"{name}_w{k} = matrix(low, {net.base + at}, {rows}, {size})")
        if k > 0:
            lines.append(f"{name}_b{k} = vector(full, {net.base + bias}, {size})")
        rows = size
    return lines


def _columns(acting: Acting) -> list[str]:
    """What the head's columns mean."""
    net = acting.networks.actor
    lines = [f"column = tl.arange(0, {net.head})"]
    if acting.numbers:
        if not acting.by_state:
            lines.append(f"log_std = vector(full, {net.base + net.log_std}, {net.head})")
        return lines
    return [
        *lines,
        "part = tl.load(parts + column)[None, :]",
        "offset = column[None, :] - tl.load(firsts + column)[None, :]",
    ]


def _inputs(rules: TracedRules, acting: Acting, name: str) -> list[str]:
    """What the networks see of an observation: ``x``, ``[BLOCK, inputs]``."""
    size, ones = acting.networks.actor.inputs, acting.networks.actor.ones
    names = obs_names(rules, name)
    if acting.one_hot:
        lines = [
            f"seen = tl.arange(0, {size})",
            "number, wanted = tl.load(one_hot + 2 * seen), tl.load(one_hot + 2 * seen + 1)",
            f"x = tl.where((seen == {ones})[None, :], 1.0, tl.zeros([BLOCK, {size}], tl.float32))",
        ]
        for k, text in enumerate(names):
            same = f"(number == {k})[None, :] & (wanted[None, :] == {text}[:, None])"
            lines.append(f"x = tl.where({same}, 1.0, x)")
        return lines
    floats = [f"{text}.to(tl.float32)" for text in names]
    padded = [*floats, "tl.full([BLOCK], 1.0, tl.float32)"]
    padded += ["tl.zeros([BLOCK], tl.float32)"] * (size - len(padded))
    numbers = len(names)
    return [
        f"x = tl.reshape({joined(padded)}, [BLOCK, {size}])",
        "if LIMIT > 0.0:",
        f"    seen = tl.arange(0, {size})",
        f"    x = tl.where((seen < {numbers})[None, :], "
        f"normalize(x, seen, statistics, {numbers}, LIMIT), x)",
    ]


def _forward(name: str, net: Network) -> list[str]:
    """Through a network: ``h``, its head ``[BLOCK, head]``."""
    lines, given = [], "x"
    for k in range(len(net.widths)):
        sums = f"product({given}, {name}_w{k}, PRECISION)"
        sums += f" + {name}_b{k}[None, :]" if k > 0 else ""
        lines.append(f"h = activate({sums}, ACTIVATION, QUICK)")
        given = "h"
    k = len(net.widths)
    return [*lines, f"h = product(h, {name}_w{k}, PRECISION) + {name}_b{k}[None, :]"]


def _value(acting: Acting) -> list[str]:
    """The value of ``x``, called ``v``, by the critic."""
    nets = acting.networks
    name, at = ("a", acting.outputs) if nets.shared else ("c", 0)
    columns = f"tl.arange(0, {nets.critic.head})"
    return [*_forward(name, nets.critic), f"v = pick(h, {columns}, {at})"]


def _act(rules: TracedRules, acting: Acting) -> list[str]:
    """The head of ``x``, an action ``a_0``, ``a_1``, ... of it, and its log-probability ``lp``."""
    nets = acting.networks
    lines = [*_inputs(rules, acting, "o"), *_forward("a", nets.actor), "head = h"]
    if nets.shared:
        lines.append(f"v = pick(h, column, {acting.outputs})")
    else:
        lines += _value(acting)
    lines.append("tl.store(value + row, v, mask=here)")
    drawn_numbers = 2 * acting.numbers or len(acting.sizes)
    lines.append("step = tl.load(first_step) + t")
    for k in range(-(-drawn_numbers // 4)):
        names = ", ".join(f"z{4 * k + j}" for j in range(4))
        lines.append(
            f"{names} = policy_uniforms(step, i, policy_low, policy_high, {POLICY_BLOCK + k})"
        )
    return lines + (_act_numbers(acting) if acting.numbers else _act_categorical(rules, acting))


def _act_categorical(rules: TracedRules, acting: Acting) -> list[str]:
    parts = len(acting.sizes)
    lines = ["logits = head"]
    if rules.mask is not None:
        width = acting.networks.actor.head
        names = [f"m_{k}.to(tl.int32)" for k in range(rules.mask_size)]
        padded = [*names, *["tl.zeros([BLOCK], tl.int32)"] * (width - len(names))]
        lines += [
            f"allowed = tl.reshape({joined(padded)}, [BLOCK, {width}]) != 0",
            'logits = tl.where(allowed, head, float("-inf"))',
        ]
    lines += [
        f"log_probs = log_softmax(logits, part, {parts})",
        'probs = tl.where(log_probs > float("-inf"), tl.exp(log_probs), 0.0)',
        "lp = tl.zeros([BLOCK], tl.float32)",
    ]
    first = 0
    for k, (size, start) in enumerate(zip(acting.sizes, acting.starts, strict=True)):
        lines += [
            *_chosen(first, size, f"z{k}"),
            f"mine = (part == {k}) & (offset == taken[:, None])",
            "lp += tl.sum(tl.where(mine, log_probs, 0.0), 1)",
            f"tl.store(action + row * {parts} + {k}, taken.to(tl.int64), mask=here)",
            f"a_{k} = taken + {start}" if start else f"a_{k} = taken",
        ]
        first += size
    return lines


def _chosen(first: int, size: int, uniform: str) -> list[str]:
    """The action, ``taken``, that a number stands for: the first whose cumulated probability
    exceeds it. Scaled by their sum, which rounding may leave below 1, the number stays below the
    last of them: what has probability 0 is never chosen."""
    sums = [f"pick(probs, column, {first})"]
    sums += [f"c{k - 1} + pick(probs, column, {first + k})" for k in range(1, size)]
    return [
        *[f"c{k} = {text}" for k, text in enumerate(sums)],
        f"reached = {uniform} * c{size - 1}",
        f"taken = {' + '.join(f'(c{k} <= reached).to(tl.int32)' for k in range(size))}",
        # Logits that are not numbers have no probability: 0 in all, and the last is not one either.
        f"taken = tl.minimum(taken, {size - 1})",
    ]


def _act_numbers(acting: Acting) -> list[str]:
    count = acting.numbers
    lines = ["lp = tl.zeros([BLOCK], tl.float32)"]
    for k in range(count):
        deviation = (
            f"pick(head, column, {count + k})"
            if acting.by_state
            else f"tl.sum(tl.where(column == {k}, log_std, 0.0), 0)"
        )
        lines += [
            f"drawn, density = gaussian(pick(head, column, {k}), {deviation}, z{k}, z{count + k})",
            "lp += density",
            f"tl.store(action + row * {count} + {k}, drawn, mask=here)",
            f"a_{k} = limited(drawn, tl.load(bounds + {k}), tl.load(bounds + {count + k}))",
        ]
    return lines


def _allowed(rules: TracedRules, state: str, where: str) -> list[str]:
    """Write the mask of a state, and keep it as ``m_<k>``; nothing without one."""
    if rules.mask is None:
        return []
    lines, outputs = program_source(rules.mask, program_inputs(rules.mask, state), "m")
    names = [f"m_{k}" for k in range(rules.mask_size)]
    return [
        *lines,
        *[f"{name} = {text}" for name, text in zip(names, outputs, strict=True)],
        *stored_rows(f"{where} + row * {rules.mask_size}", names, "here"),
    ]


# The environment ----------------------------------------------------------------------------------
def _one_step(rules: TracedRules, acting: Acting) -> list[str]:
    """The body of the loop over steps."""
    lines = [*_act(rules, acting), "tl.store(log_prob + row, lp, mask=here)"]
    lines += drawn("u", rules.step_draws, "s__steps + 1", "episode - 1")
    computed, outputs = program_source(rules.step, program_inputs(rules.step, "s"), "v")
    names = [*rules.fields, "_steps", "_return"]
    lines += [
        *computed,
        *[f"n_{name} = {text}" for name, text in zip(rules.fields, outputs, strict=False)],
        f"gained = {outputs[-2]}",
        f"over = {outputs[-1]}",
        "n__steps = s__steps + 1",
        "n__return = s__return + gained",
        "late = n__steps >= max_steps",
        "ended = (over | late) & here",
        "tl.store(reward + row, gained, mask=here)",
        "tl.store(terminated + row, over, mask=here)",
        "tl.store(truncated + row, late, mask=here)",
        *observed(rules, "n", "o", "o"),
        "last = tl.zeros([BLOCK], tl.float32)",
        "if tl.max((ended & ~over).to(tl.int32), 0) > 0:",
        *[f"    {line}" for line in (*_inputs(rules, acting, "o"), *_value(acting))],
        "    last = tl.where(ended & ~over, v, 0.0)",
        "tl.store(final_value + row, last, mask=here)",
        *_hinted(rules, "hint", only="ended & ~over"),  # those observations are final
        "if tl.max(ended.to(tl.int32), 0) > 0:",
        indent("\n".join(_ended(rules)), "    "),
        "row += num_envs",
        *_hinted(rules, "hint", "lp", "gained", "last"),
        *stored_obs(rules, "obs", "o", "here"),
        *_allowed(rules, "n", "action_mask"),
        *[f"s_{name} = n_{name}" for name in names],
    ]
    return lines


def _hinted(rules: TracedRules, before: str, *numbers: str, only: str = "") -> list[str]:
    """``hint``: 0 as long as all numbers and observations were finite, else NaN. (Values would be
    among them, if Triton could compile that for compute capability 10.)"""
    floats = obs_names(rules, "o") if rules.observation.dtype == FLOAT else []
    terms = " + ".join([*numbers, *floats]) or "0.0"
    after = f"{before} + 0.0 * ({terms})"
    return [f"hint = tl.where({only}, {after}, {before})" if only else f"hint = {after}"]


def _ended(rules: TracedRules) -> list[str]:
    """Report the episodes that ended, and begin new ones."""
    report = [
        "n__return",
        "n__steps.to(tl.float32, bitcast=True)",
        "seconds(now, start)",
        "tl.zeros([BLOCK], tl.float32)",
    ]
    return [
        *stored_rows("report + row * 4", report, "ended"),
        *stored_obs(rules, "final_obs", "o", "ended"),
        *begun(rules),
        *observed(rules, "r", "e", "e"),
        *[f"n_{name} = tl.where(ended, r_{name}, n_{name})" for name in rules.fields],
        *[
            f"{after} = tl.where(ended, {new}, {after})"
            for after, new in zip(obs_names(rules, "o"), obs_names(rules, "e"), strict=True)
        ],
        "n__steps = tl.where(ended, 0, n__steps)",
        "n__return = tl.where(ended, 0.0, n__return)",
        "episode = tl.where(ended, episode + 1, episode)",
        "start = tl.where(ended, now, start)",
    ]
