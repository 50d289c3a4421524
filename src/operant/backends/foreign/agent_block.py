"""`AgentBlock`: environments of PettingZoo's parallel API, whose agents are rows of a batch."""

from __future__ import annotations

from typing import Any, NoReturn

from operant.backends.foreign.block import EnvBlock, Layouts, MakeEnv
from operant.backends.foreign.errors import shown
from operant.backends.foreign.memory import Memory
from operant.backends.foreign.pettingzoo import as_parallel


class AgentBlock(EnvBlock):
    """See `EnvBlock`. Row ``e * A + a`` is agent a of environment e.

    An agent that is terminated or truncated has its last observation in ``final_obs``, and its row
    rests: ``memory.live`` is False. One that comes later begins then. When no agent is left, the
    environment begins again in the same step.
    """

    def __init__(
        self, make_env: MakeEnv, layouts: Layouts, memory: Memory, first: int, end: int
    ) -> None:
        super().__init__(make_env, layouts, memory, first, end)
        # What rows show that rest: zeros, where the space has them. A policy is asked about them
        # too, and a Discrete that counts from 1 has no 0 to look up.
        self._nothing = layouts.observation.example(1)[0]

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
        self._check_dicts(k, "reset()", observations=obs, infos=info)
        self._check_agents(k)
        live = [self._show(k, a, obs, info) for a in range(len(self.layouts.agents))]
        if not any(live):
            self._fail(self.first + k, "has no agents after reset()")

    def _check_dicts(self, k: int, where: str, **given: Any) -> None:
        for name, value in given.items():
            if not isinstance(value, dict):
                self._fail(
                    self.first + k,
                    f"gave {shown(value)} for the {name} of {where}, not a dict of agents",
                )

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
            self._obs_rows[r][...] = self._nothing
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
        except BaseException as error:
            self._refuse_step(k, actions, error)
        given = {"observations": obs, "rewards": reward, "infos": info}
        self._check_dicts(k, "step()", terminated=terminated, truncated=truncated, **given)
        self._check_agents(k)
        anyone = False
        for a, agent in enumerate(agents):
            r, action = base + a, actions.get(agent)
            ended = [
                self._flag(r, name, found.get(agent, False), action)
                for name, found in (("terminated", terminated), ("truncated", truncated))
            ]
            self._reward[self._span.start + r] = 0.0
            if acted[a]:
                self._check_given(r, action, obs, reward, terminated, truncated)
                self._write_result(r, action, obs[agent], reward[agent], *ended)
            anyone |= self._show(k, a, obs, info, any(ended))
        if not anyone:
            self._begin(k, *self._reset_one(k))

    def _check_given(
        self, r: int, action: Any, obs: Any, reward: Any, terminated: Any, truncated: Any
    ) -> None:
        """Whether an agent that acted is in what a step gave."""
        agent = self._agent(r)
        for name, found in (
            ("the observations", obs),
            ("the rewards", reward),
            ("terminated", terminated),
            ("truncated", truncated),
        ):
            if agent not in found and not (found is reward and hasattr(found, "default_factory")):
                self._fail_row(r, f"acted, and is missing in {name} of step()", action)

    def _write_result(
        self, r: int, action: Any, obs: Any, reward: Any, terminated: bool, truncated: bool
    ) -> None:
        """Write what came of an agent's action."""
        self._write_reward(r, reward, action)
        if terminated or truncated:
            self._memory.terminated[self._span.start + r] = terminated
            self._memory.truncated[self._span.start + r] = truncated
            self._write_final(r, obs, action)
        elif self._agent(r) not in self.envs[r // len(self.layouts.agents)].agents:
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
