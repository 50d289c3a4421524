"""Writing an agent as ONNX, and trying it on observations it would meet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from operant.lang.env import Env
from operant.models.onnx import export_onnx, verify_onnx
from operant.training.agent import Agent
from operant.training.config import BaseConfig
from operant.training.evaluate import evaluation_env, steps
from operant.vector.foreign_env import ForeignEnv

_ENVS, _STEPS = 16, 32


def export_agent(
    agent: Agent, env: type[Env] | ForeignEnv | str, config: BaseConfig, path: Path
) -> float:
    """Write the policy to `path`; the largest difference that onnxruntime shows on observations of
    real episodes.

    Raises:
        ValueError: the ONNX packages are missing, or the written policy acts differently.
    """
    distribution = agent.distribution

    def action(head: Tensor) -> Tensor:
        return distribution.to_env(distribution.mode(head))

    layout = agent.obs_layout
    if layout.is_tree:
        raise ValueError(f"only flat observations can be exported, not {agent.observation_space}")
    obs_dtype = torch.from_numpy(np.empty(0, layout.dtype)).dtype
    batch = evaluation_env(env, config.env, _ENVS)
    met = []
    for k, _ in enumerate(steps(agent, batch, deterministic=False, seed=0)):
        met.append(layout.memory(_ENVS))
        batch.write_obs(met[-1])
        if k + 1 == _STEPS:
            break
    batch.close()
    export_onnx(agent.policy, layout.shape, path, obs_dtype=obs_dtype, postprocess=action)
    return verify_onnx(agent.policy, torch.from_numpy(np.concatenate(met)), path, action)
