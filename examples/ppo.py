"""PPO in one file, on Operant's public parts: read it from top to bottom, then change it.

    python examples/ppo.py --env CartPole-v1 --steps 200000

Memory is time-major, ``[T, N]``: T steps of N environments. `operant.PPO` is the same algorithm
with faster engines, action masks, normalisation, checkpoints and metrics.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

import operant
from operant.buffers import RolloutBuffer
from operant.models import policy_for


@dataclass(frozen=True)
class Options:
    env: str = "CartPole-v1"
    steps: int = 200_000  # of all environments together
    seed: int = 1
    num_envs: int = 128  # N
    num_steps: int = 32  # T
    epochs: int = 4  # passes over a rollout
    minibatches: int = 4  # updates in a pass
    learning_rate: float = 4e-3  # falls to 0 at the end
    gamma: float = 0.98
    gae_lambda: float = 0.9
    clip: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.0
    max_grad_norm: float = 0.5


def collect(
    env: operant.VecEnv, policy: nn.Module, buffer: RolloutBuffer, obs: np.ndarray
) -> tuple[np.ndarray, list[float]]:
    """Play T steps into `buffer`; the next observations, and the returns of finished episodes."""
    returns: list[float] = []
    buffer.start(obs)
    for t in range(buffer.num_steps):
        with torch.no_grad():
            head, buffer.value[t] = policy(buffer.obs[t])
            noise = torch.rand(buffer.num_envs, policy.distribution.noise_size)
            buffer.action[t], buffer.log_prob[t] = policy.distribution.sample(head, noise)
        action = policy.distribution.to_env(buffer.action[t]).numpy()
        obs, reward, terminated, truncated, info = env.step(action)
        buffer.store_step(t, obs, reward, terminated, truncated)
        if truncated.any():  # cut off, not over: its value counts
            (cut,) = truncated.nonzero()
            buffer.store_final_obs(t, cut, info["final_obs"][cut])
        if "episode" in info:
            returns += info["episode"]["r"][info["_episode"]].tolist()
    return obs, returns


def compute_advantages(policy: nn.Module, buffer: RolloutBuffer, options: Options) -> None:
    """Values after the last step and of truncated episodes, then GAE over all."""
    with torch.no_grad():
        buffer.last_value.copy_(policy.value(buffer.obs[-1]))
    buffer.fill_final_values(policy.value)
    buffer.compute_advantages(options.gamma, options.gae_lambda)


def loss(policy: nn.Module, batch: list[Tensor], options: Options) -> Tensor:
    """The clipped objective, the value's error and the entropy bonus of a minibatch."""
    obs, action, old_log_prob, advantage, target = batch
    head, value = policy(obs)
    log_prob, entropy = policy.distribution.evaluate(head, action)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (log_prob - old_log_prob).exp()
    near_one = ratio.clamp(1 - options.clip, 1 + options.clip)
    policy_loss = -torch.minimum(ratio * advantage, near_one * advantage).mean()
    value_loss = 0.5 * (value - target).square().mean()
    bonus = options.entropy_coef * entropy.mean()
    return policy_loss + options.value_coef * value_loss - bonus


def update(
    policy: nn.Module, optimizer: torch.optim.Optimizer, buffer: RolloutBuffer, options: Options
) -> None:
    """Some passes over the rollout, in minibatches of shuffled samples."""
    samples = buffer.flat("obs", "action", "log_prob", "advantage", "target")
    for _ in range(options.epochs):
        for chosen in torch.randperm(len(buffer)).chunk(options.minibatches):
            optimizer.zero_grad()
            loss(policy, [sample[chosen] for sample in samples], options).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), options.max_grad_norm)
            optimizer.step()


def train(options: Options) -> nn.Module:
    """A trained policy."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # networks as small as these are slower with more
    batch = {"seed": options.seed, "autoreset_mode": "SameStep", "copy": False}
    env = operant.make(options.env, options.num_envs, backend="cpu", **batch)
    policy = policy_for(env.single_observation_space, env.single_action_space)
    optimizer = torch.optim.Adam(policy.parameters(), options.learning_rate, eps=1e-5)
    shape, actions = env.single_observation_space.shape, policy.distribution
    sizes = (options.num_steps, options.num_envs, shape, actions.action_shape)
    buffer = RolloutBuffer(*sizes, action_dtype=actions.action_dtype)
    obs, _ = env.reset()
    iterations = -(-options.steps // len(buffer))
    for iteration in range(iterations):
        optimizer.param_groups[0]["lr"] = options.learning_rate * (1 - iteration / iterations)
        obs, returns = collect(env, policy, buffer, obs)
        compute_advantages(policy, buffer, options)
        update(policy, optimizer, buffer, options)
        if returns and (iteration + 1) % 10 == 0:
            print(f"step {(iteration + 1) * len(buffer):>8,}  return {np.mean(returns):8.1f}")
    env.close()
    return policy


def evaluate(policy: nn.Module, env_id: str, episodes: int = 100, seed: int = 99) -> float:
    """The mean return of one episode in each of so many environments, without exploration."""
    env = operant.make(env_id, episodes, backend="cpu", seed=seed)
    (obs, _), running, total = env.reset(), np.ones(episodes, bool), np.zeros(episodes)
    while running.any():
        with torch.no_grad():
            action = policy.distribution.mode(policy.head(torch.from_numpy(obs)))
        obs, reward, terminated, truncated, _ = env.step(policy.distribution.to_env(action).numpy())
        total += np.where(running, reward, 0.0)
        running &= ~(terminated | truncated)
    return float(total.mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, value in vars(Options()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    chosen, began = Options(**vars(parser.parse_args())), time.perf_counter()
    trained = train(chosen)
    print(f"trained for {time.perf_counter() - began:.1f} s")
    print(f"mean return of 100 episodes: {evaluate(trained, chosen.env):.1f}")
