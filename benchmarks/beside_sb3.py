"""Time to the same return beside Stable-Baselines3, with RL Zoo's values for it and ours for us.

    python benchmarks/beside_sb3.py benchmarks/results/beside_sb3_2_cores.json
    python benchmarks/beside_sb3.py - --only Hopper --seeds 7

Both train in a process of their own with all cores, one after the other, for as many steps. Every
50 000 steps the greedy policy plays 20 episodes, while the clock stands still; starting up and
compiling count. `seconds` of a row says when each return of the list was reached first, null if
it never was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

EVERY, EPISODES, STEPS = 50_000, 20, 1_000_000
RETURNS = {"LunarLander-v3": (0, 100, 200, 230), "Hopper-v5": (1000, 2000, 2400, 3000)}
# RL Zoo's `ppo.yml`; for Hopper it asks for normalised observations and rewards too.
_ZOO: dict[str, dict[str, Any]] = {
    "LunarLander-v3": {
        "n_envs": 16,
        "n_steps": 1024,
        "batch_size": 64,
        "gae_lambda": 0.98,
        "gamma": 0.999,
        "n_epochs": 4,
        "ent_coef": 0.01,
    },
    "Hopper-v5": {
        "n_envs": 1,
        "n_steps": 512,
        "batch_size": 32,
        "gae_lambda": 0.99,
        "gamma": 0.999,
        "n_epochs": 5,
        "ent_coef": 0.00229519,
        "learning_rate": 9.80828e-05,
        "max_grad_norm": 0.7,
        "vf_coef": 0.835671,
    },
}
_NORMALIZED = ("Hopper-v5",)


class Curve:
    """Seconds of training and the return there, at each look; the clock stands still meanwhile."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, float, float]] = []
        self._began, self._stood = time.perf_counter(), 0.0

    def look(self, steps: int, play: Any) -> None:
        """Note the mean return that `play` gives."""
        now = time.perf_counter()
        reached = play()
        self.rows.append((steps, round(now - self._began - self._stood, 2), round(reached, 1)))
        self._stood += time.perf_counter() - now


def ours(env_id: str, seed: int, steps: int) -> Curve:
    """Operant, from its shipped values."""
    curve = Curve()
    from operant import PPO, Callback
    from operant.training.evaluate import evaluate

    class Look(Callback):
        def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
            if trainer.steps // EVERY > (trainer.steps - len(trainer.buffer)) // EVERY:
                curve.look(trainer.steps, lambda: played(trainer))

    def played(trainer: Any) -> float:
        found = evaluate(
            trainer.agent, env_id, trainer.config.env, episodes=EPISODES, seed=seed + 1
        )
        return found.mean_return

    PPO(env_id, seed=seed).learn(steps, callbacks=[Look()], progress=False)
    return curve


def theirs(env_id: str, seed: int, steps: int) -> Curve:
    """Stable-Baselines3, with RL Zoo's values."""
    curve = Curve()
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize, sync_envs_normalization

    values = dict(_ZOO[env_id])
    env: Any = make_vec_env(env_id, n_envs=values.pop("n_envs"), seed=seed)
    judge: Any = make_vec_env(env_id, n_envs=1, seed=seed + 1)
    if env_id in _NORMALIZED:
        env = VecNormalize(env, gamma=values["gamma"])
        judge = VecNormalize(judge, training=False, norm_reward=False)
        values["policy_kwargs"] = {
            "log_std_init": -2,
            "ortho_init": False,
            "activation_fn": torch.nn.ReLU,
            "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        }

    class Look(BaseCallback):
        seen = 0

        def _on_step(self) -> bool:
            if self.num_timesteps // EVERY > self.seen:
                self.seen = self.num_timesteps // EVERY
                curve.look(self.num_timesteps, self.played)
            return True

        def played(self) -> float:
            if env_id in _NORMALIZED:
                sync_envs_normalization(env, judge)
            return float(evaluate_policy(self.model, judge, n_eval_episodes=EPISODES)[0])

    PPO("MlpPolicy", env, seed=seed, device="cpu", **values).learn(steps, callback=Look())
    return curve


def rowed(side: str, env_id: str, seed: int, steps: int) -> dict[str, Any]:
    """A row of the results: a curve, in a process of its own."""
    command = [sys.executable, __file__, "-", "--child", side, env_id, str(seed), str(steps)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    curve = json.loads(done.stdout.splitlines()[-1])
    reached = {
        str(wanted): next((second for _, second, mean in curve if mean >= wanted), None)
        for wanted in RETURNS[env_id]
    }
    return {"side": side, "env": env_id, "seed": seed, "seconds": reached, "curve": curve}


def main() -> int:
    """Train everyone in turn, print a row for each, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", help="JSON to write; '-' for none")
    parser.add_argument("--only", default="", help="environments with this text alone")
    parser.add_argument("--seeds", default="101")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        side, env_id, seed, steps = options.child
        curve = {"operant": ours, "sb3": theirs}[side](env_id, int(seed), int(steps))
        print(json.dumps(curve.rows))
        return 0
    from operant.bench.frame import frame, write_json

    rows = []
    for seed in map(int, options.seeds.split(",")):
        for env_id in RETURNS:
            if options.only in env_id:
                for side in ("operant", "sb3", "operant"):
                    rows.append(rowed(side, env_id, seed, options.steps))
                    print(json.dumps(rows[-1]), flush=True)
    if options.file != "-":
        write_json(options.file, frame(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
