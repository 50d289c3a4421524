"""`AgentBlock`: environments of PettingZoo's parallel API, whose agents are rows of a batch."""

from __future__ import annotations

from typing import Any, NoReturn

from operant.backends.foreign.block import EnvBlock, Layouts, MakeEnv
from operant.backends.foreign.memory import Memory
from operant.backends.foreign.pettingzoo import as_parallel


class AgentBlock(EnvBlock):
    """See `EnvBlock`. Row ``e * A + a`` is agent a of environment e.

    An agent that is terminated or truncated has its last observation in ``final_obs``, and its row
    rests: ``memory.live`` is False. One that comes later begins then. When no agent is left, the
    environment begins again in the same step.
    """

    def _made(self, make_env: MakeEnv) -> Any:
        return as_parallel(make_env())

    def _name(self, env: Any) -> str:
        return str(env)

    def _check_spaces(self, index: int, env: Any) -> None:
        if tuple(env.possible_agents) != self.layouts.agents:
            self._fail(
                index,
                f"has the agents {list(env.possible_agents)}, the others have "
                f"{list(self.layouts.agents)}; all environments of a batch must have the same",
            )
        for agent in self.layouts.agents:
            super()._check_spaces(index, _AgentSpaces(env, agent))

    def _begin(self, k: int, obs: Any, info: Any) -> None:
        self._check_agents(k)
        live = [self._show(k, a, obs, info) for a in range(len(self.layouts.agents))]
        if not any(live):
            self._fail(self.first + k, "has no agents after reset()")

    def _check_agents(self, k: int) -> None:
        for agent in self.envs[k].agents:
            if agent not in self.layouts.agents:
                self._fail(
                    self.first + k,
                    f"has the agent {agent!r}, who is not among its possible_agents "
                    f"{list(self.layouts.agents)}; name everyone there who may come later",
                )

    def _show(self, k: int, a: int, obs: Any, info: Any, over: bool = False) -> bool:
        """Write what an agent sees now; whether it acts next."""
        agent, r = self.layouts.agents[a], k * len(self.layouts.agents) + a
        live = not over and agent in self.envs[k].agents
        self._memory.live[self._span.start + r] = live
        if live and agent not in obs:
            self._fail_row(r, "was given no observation, though it acts next")
        if live:
            self._write_obs(r, obs[agent], self._obs_rows[r])
            if self._masks is not None:
                self._write_mask(r, obs[agent], info.get(agent))
        else:
            self._obs_rows[r][...] = 0
            if self._masks is not None:
                self._masks[r][:] = True
        return live

    def _step_one(self, k: int) -> None:
        agents, env = self.layouts.agents, self.envs[k]
        base, memory = k * len(agents), self._memory
        rows = range(base, base + len(agents))
        acted = memory.live[self._span.start + base :][: len(agents)].tolist()
        actions = {
            agent: self._read_action(self._action_rows[r])
            for agent, r in zip(agents, rows, strict=True)
            if agent in env.agents
        }
        try:
            obs, reward, terminated, truncated, info = self._steps[k](actions)
        except Exception as error:
            self._refuse_step(k, actions, error)
        self._check_agents(k)
        anyone = False
        for a, agent in enumerate(agents):
            r, over = base + a, bool(terminated.get(agent) or truncated.get(agent))
            self._reward[self._span.start + r] = 0.0
            if acted[a]:
                self._write_result(r, actions[agent], obs, reward, terminated, truncated)
            anyone |= self._show(k, a, obs, info, over)
        if not anyone:
            self._begin(k, *self._reset_one(k))

    def _write_result(
        self, r: int, action: Any, obs: Any, reward: Any, terminated: Any, truncated: Any
    ) -> None:
        """Write what came of an agent's action."""
        agent, memory = self._agent(r), self._memory
        missing = [
            name
            for name, found in (
                ("the observations", obs),
                ("the rewards", reward),
                ("terminated", terminated),
                ("truncated", truncated),
            )
            if agent not in found
            and not (name == "the rewards" and hasattr(found, "default_factory"))
        ]
        if missing:
            self._fail_row(r, f"acted, and is missing in {missing[0]} of step()", action)
        worth = reward[agent]
        try:
            self._reward[self._span.start + r] = worth = float(worth)
        except (TypeError, ValueError):
            self._refuse_reward(r, worth, action)
        if worth != worth:
            self._refuse_reward(r, worth, action)
        if terminated[agent] or truncated[agent]:
            memory.terminated[self._span.start + r] = terminated[agent]
            memory.truncated[self._span.start + r] = truncated[agent]
            self._write_obs(r, obs[agent], self._final_rows[r], action)
        elif agent not in self.envs[r // len(self.layouts.agents)].agents:
            self._fail_row(
                r, "is no longer in env.agents, but was neither terminated nor truncated", action
            )

    def _agent(self, r: int) -> Any:
        return self.layouts.agents[r % len(self.layouts.agents)]

    def _fail_row(self, r: int, what: str, action: Any = None) -> NoReturn:
        index = self.first + r // len(self.layouts.agents)
        self._fail(index, what, action=action, who=f"agent {self._agent(r)!r} of ")


class _AgentSpaces:
    """The spaces of one agent, as an environment of its own has them."""

    def __init__(self, env: Any, agent: Any) -> None:
        self.observation_space = env.observation_space(agent)
        self.action_space = env.action_space(agent)


def env_block(
    make_env: MakeEnv, layouts: Layouts, memory: Memory, first: int, end: int
) -> EnvBlock:
    """Environments `first` up to `end` of a batch, of either kind; see `EnvBlock`."""
    kind = AgentBlock if layouts.agents else EnvBlock
    return kind(make_env, layouts, memory, first, end)
