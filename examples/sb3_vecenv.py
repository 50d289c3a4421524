"""Stable-Baselines3 on Operant's environments: an adapter, and PPO on CartPole."""

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

import operant


class OperantVecEnv(VecEnv):
    """A batch made by `operant.make`, as Stable-Baselines3 wants it."""

    def __init__(self, env_id, num_envs, **options):
        self.env = operant.make(env_id, num_envs, autoreset_mode="SameStep", **options)
        super().__init__(num_envs, self.env.single_observation_space, self.env.single_action_space)

    def reset(self):
        obs, _ = self.env.reset(seed=self._seeds)  # set by seed(); None: streams go on
        self._reset_seeds()
        return obs

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        obs, reward, terminated, truncated, info = self.env.step(self.actions)
        done = terminated | truncated
        infos = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(done):
            infos[i]["terminal_observation"] = info["final_obs"][i]
            infos[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
            infos[i]["episode"] = {key: array[i].item() for key, array in info["episode"].items()}
        return obs, reward, done, infos

    def close(self):
        self.env.close()

    def get_attr(self, attr_name, indices=None):
        return [getattr(self.env, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, *args, **kwargs):
        raise NotImplementedError("the environments of a batch are not objects of their own")

    env_method = set_attr

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False for _ in self._get_indices(indices)]


def train(total_steps):
    env = OperantVecEnv("CartPole-v1", 32)
    model = PPO("MlpPolicy", env, 1e-3, n_steps=64, batch_size=512, seed=0, device="cpu")
    model.learn(total_steps)
    return np.mean([episode["r"] for episode in model.ep_info_buffer])


if __name__ == "__main__":
    torch.set_num_threads(1)  # small networks: threads would mostly wait for each other
    print(f"mean return of the last episodes: {train(100_000):.0f}")
