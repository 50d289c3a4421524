"""A policy and an environment in a plain PyTorch loop, both on the GPU; nothing leaves it.

    python examples/torch_loop.py --num-envs 8192 --steps 1000

Without a GPU: TRITON_INTERPRET=1 python examples/torch_loop.py --num-envs 16 --steps 20
"""

import argparse
import time

import torch
from torch import nn

import operant


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-envs", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()

    env = operant.make("CartPole-v1", options.num_envs, backend="cuda")
    device = env.device
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
    ended = torch.zeros((), dtype=torch.int64, device=device)
    gained = torch.zeros((), device=device)

    obs, _ = env.reset(seed=0)
    began = time.perf_counter()
    with torch.no_grad():
        for _ in range(options.steps):
            noise = torch.rand(options.num_envs, 2, device=device)
            action = (policy(obs) - torch.log(-torch.log(noise))).argmax(-1)  # a sample
            obs, _, terminated, truncated, info = env.step(action)
            ended += (terminated | truncated).sum()
            gained += info["episode"]["r"].sum()
    count = int(ended)  # the first time that anything is read from the GPU
    seconds = time.perf_counter() - began
    print(f"{count} episodes, mean return {float(gained) / max(count, 1):.1f}")
    print(f"{options.num_envs * options.steps / seconds / 1e6:.1f} million steps a second")


if __name__ == "__main__":
    main()
