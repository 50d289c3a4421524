"""Which jobs the fused engines can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import nn

from operant.buffers.normalizer import RunningNormalizer
from operant.compiler.spec.rules import TracedRules
from operant.models.actor_critic import ActorCritic, ContinuousActorCritic, DiscreteActorCritic
from operant.models.distributions import Categorical, Gaussian, MultiCategorical, SquashedGaussian
from operant.models.encoders import OneHot, column, flatten
from operant.models.layers import ACTIVATIONS
from operant.ppo.job import Job
from operant.toolchain.gpus import is_hopper
from operant.vector.batch import compiled_batch
from operant.vector.frame_stack import FrameStack

MOST_LAYERS = 3
MOST_NEURONS = 256
MOST_NEURONS_ON_GPU = 128
MOST_NEURONS_IN_BF16 = 64
"""On any GPU and of any network; see `why_not_bf16`."""
MOST_INPUTS, MOST_OUTPUTS = 64, 32
"""Of a network on the GPU."""
WIDE_INPUTS, WIDE_OUTPUTS = 31, 8
"""Of one with more than 64 neurons a layer, in bf16."""
_CALLED = frozenset(("forward", "head", "value", "_head", "_inputs"))
"""Functions of a policy's layers that kernels stand for."""


def why_not_fused_on_gpu(job: Job) -> str | None:
    """The same for the one on the GPU, whose networks are smaller and whose products may be less
    precise."""
    batch = compiled_batch(job.env)
    if batch is None or not isinstance(batch.rules, TracedRules):
        return "it steps environments whose state is a tuple of numbers, not arrays"
    if job.config.run.precision == "fp16":
        return "it computes in bf16, tf32 or fp32, not fp16"
    reason = why_not_fused(job, MOST_NEURONS_ON_GPU)
    if reason is not None:
        return reason
    policy = job.policy
    assert isinstance(policy, ActorCritic)
    reason = why_not_bf16(policy)
    if job.config.run.precision == "bf16" and reason is not None:
        return reason
    inputs, outputs = policy.actor[0].in_features, policy.actor_head.out_features
    if inputs > MOST_INPUTS:  # type: ignore[operator]
        return f"its networks have {MOST_INPUTS} inputs at most, not {inputs}"
    if outputs + (policy.critic is None) > MOST_OUTPUTS:
        return f"its networks have {MOST_OUTPUTS} outputs at most, not {outputs}"
    return None


def why_not_bf16(policy: ActorCritic) -> str | None:
    """Why the fused engine on the GPU cannot train a policy in bf16, as the end of a sentence."""
    widest, inputs = widest_layer(policy), policy.actor[0].in_features
    if widest > MOST_NEURONS_IN_BF16 and not _fits_wide(policy):
        return (
            f"in bf16 its layers have {MOST_NEURONS_IN_BF16} neurons at most, not {widest} (on a "
            f"Hopper GPU {MOST_NEURONS_ON_GPU}, with two layers of tanh or relu at most, "
            f"{WIDE_INPUTS} inputs and {WIDE_OUTPUTS} outputs)"
        )
    if inputs >= MOST_INPUTS:  # type: ignore[operator]  # there is a constant one besides
        return f"in bf16 its networks have {MOST_INPUTS - 1} inputs at most, not {inputs}"
    return None


def _fits_wide(policy: ActorCritic) -> bool:
    """Whether registers and shared memory of a processor are enough for the kernel that trains
    layers of 128 neurons."""
    trunks = [policy.actor] if policy.critic is None else [policy.actor, policy.critic]
    inputs, outputs = policy.actor[0].in_features, policy.actor_head.out_features
    return (
        is_hopper(policy.actor_head.weight.device)
        and max(map(len, trunks)) <= 4
        and not isinstance(policy.actor[1], nn.SiLU)
        and bool(inputs <= WIDE_INPUTS and outputs <= WIDE_OUTPUTS)  # type: ignore[operator]
    )


def why_fused_is_slow_on_gpu(job: Job) -> str | None:
    """Why another engine may be faster than the fused one, of a job that it can do."""
    policy = job.policy
    assert isinstance(policy, ActorCritic)
    return None if widest_layer(policy) <= MOST_NEURONS_IN_BF16 else why_not_bf16(policy)


def widest_layer(policy: ActorCritic) -> int:
    """Neurons of the widest hidden layer."""
    trunks = [policy.actor] if policy.critic is None else [policy.actor, policy.critic]
    layers = [layer for trunk in trunks for layer in trunk if isinstance(layer, nn.Linear)]
    return max(layer.out_features for layer in layers)


def why_not_fused(job: Job, most_neurons: int = MOST_NEURONS) -> str | None:
    """Why the fused engine cannot do a job, as the end of a sentence; None if it can."""
    policy = job.policy
    if job.two_streams:
        return "it knows one value of a policy, and intrinsic.separate_value asks for two"
    if job.value_scale is not None:
        return "it knows values of a linear layer, and those of PopArt change their scale"
    if isinstance(job.env, FrameStack):
        return "it stores whole observations, and these are stacks whose frames are stored once"
    if job.obs_layout.is_tree:
        return "it knows observations of one array, not Dict and Tuple"
    if type(policy) not in (ActorCritic, ContinuousActorCritic, DiscreteActorCritic):
        return f"it knows the networks of operant.models, not {type(policy).__name__}"
    assert isinstance(policy, ActorCritic)
    if type(job.distribution) not in (Categorical, MultiCategorical, Gaussian):
        if isinstance(job.distribution, SquashedGaussian):
            return "it does not squash actions"
        return f"it does not know the distribution {type(job.distribution).__name__}"
    if isinstance(policy.encode, nn.Module) and type(policy.encode) is not OneHot:
        kind = type(policy.encode).__name__
        return f"it takes plain numbers and one-hot vectors, not what {kind} makes of observations"
    trunks = [policy.actor] if policy.critic is None else [policy.actor, policy.critic]
    for trunk in trunks:
        reason = _why_not_trunk(trunk, most_neurons)
        if reason is not None:
            return reason
    if len({type(trunk[1]) for trunk in trunks}) > 1:
        return "its layers have one activation"
    hooked = why_not_hooks(Parts.of(policy))
    if hooked is not None:
        return hooked
    if policy.encode not in (flatten, column) and type(policy.encode) is not OneHot:
        return "it does not know how the policy encodes observations"
    if type(policy.obs_normalizer) not in (RunningNormalizer, type(None)):
        return "it does not know how the policy normalises observations"
    return _why_not_parameters(job, policy, trunks)


class Parts(NamedTuple):
    """What a policy is made of."""

    layers: list[nn.Module]
    parameters: list[nn.Parameter]

    @classmethod
    def of(cls, policy: nn.Module) -> Parts:
        """In a quarter of the time that ``policy.parameters()`` takes: asked at each rollout."""
        layers = list(policy.modules())
        found = [p for one in layers for p in one._parameters.values() if p is not None]
        return cls(layers, found)


def why_not_hooks(policy: Parts) -> str | None:
    """Why the fused engine cannot train a policy that runs code of someone's own."""
    for module in policy.layers:
        hooks = (module._forward_hooks, module._forward_pre_hooks)
        if any(hooks) or module._backward_hooks or module._backward_pre_hooks:
            return "it does not call the policy's hooks"
        replaced = _CALLED & vars(module).keys()
        if replaced:
            return f"it does not call {min(replaced)}() that was replaced in the policy"
    for parameter in policy.parameters:
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            return "it does not call the hooks of parameters"
    return None


def check_memory_of(
    policy: Parts, shapes: Mapping[int, tuple[int, ...]], device: torch.device
) -> None:
    """Raise ValueError unless a policy's parameters are still those that an engine was made for,
    of whom it knows the `shapes` by their ids."""
    if {id(parameter) for parameter in policy.parameters} != shapes.keys():
        raise ValueError(
            "the policy's parameters were replaced by others; change them in place "
            "(load_state_dict without assign=True), or make a new PPO"
        )
    for parameter in policy.parameters:
        shape = shapes[id(parameter)]
        good = parameter.dtype == torch.float32 and parameter.device == device
        if not good or parameter.shape != shape:
            raise ValueError(
                f"a parameter of the policy is now {parameter.dtype} of shape "
                f"{tuple(parameter.shape)} on {parameter.device}; the fused engine was made for "
                f"float32 of shape {shape} on {device}"
            )


def check_training_of(policy: Parts) -> None:
    """Raise ValueError if something was asked of a policy that the fused engines do not do."""
    if not all(parameter.requires_grad for parameter in policy.parameters):
        raise ValueError(
            "a parameter was frozen after PPO was made; the fused engine trains all: "
            "freeze it before, or use engine='eager'"
        )
    hooked = why_not_hooks(policy)
    if hooked is not None:
        raise ValueError(f"the fused engine cannot go on: {hooked}; use engine='eager'")


def _why_not_parameters(job: Job, policy: ActorCritic, trunks: list[nn.Sequential]) -> str | None:
    """Each layer has weights and biases of its own, and there are no others."""
    heads: list[nn.Module] = [policy.actor_head, policy.critic_head]
    if any(type(head) is not nn.Linear for head in heads):
        return "it knows heads that are linear layers"
    layers = [layer for trunk in trunks for layer in trunk if isinstance(layer, nn.Linear)]
    layers += [head for head in heads if isinstance(head, nn.Linear)]
    if any(layer.bias is None for layer in layers):
        return "its layers have biases"
    known = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
    log_std = getattr(policy, "log_std", None)
    known += [] if log_std is None else [log_std]
    if len({id(tensor) for tensor in known}) < len(known):
        return "its layers do not share weights"
    if {id(tensor) for tensor in known} != {id(tensor) for tensor in policy.parameters()}:
        return "it does not know all of the policy's parameters"
    if len(job.optimizer.parameters) != len(known):
        return "it trains all parameters, and some are frozen"
    if not all(tensor.is_contiguous() for tensor in known):
        return "it needs parameters that are contiguous in memory"
    return None


def _why_not_trunk(trunk: nn.Module, most_neurons: int) -> str | None:
    layers = list(trunk) if isinstance(trunk, nn.Sequential) else []
    pairs = list(zip(layers[::2], layers[1::2], strict=False))
    known = tuple(ACTIVATIONS.values())
    if len(layers) % 2 or any(
        type(layer) is not nn.Linear or type(activation) not in known for layer, activation in pairs
    ):
        return "it knows linear layers, each followed by tanh, relu or silu"
    if not 1 <= len(pairs) <= MOST_LAYERS:
        return f"it does 1 to {MOST_LAYERS} hidden layers, not {len(pairs)}"
    if len({type(activation) for _, activation in pairs}) > 1:
        return "its layers have one activation"
    widest = max(layer.out_features for layer, _ in pairs if isinstance(layer, nn.Linear))
    if widest > most_neurons:
        return f"its hidden layers have {most_neurons} neurons at most, not {widest}"
    return None


def category_sizes(dist: Categorical | MultiCategorical) -> tuple[list[int], list[int]]:
    """How many actions each choice has, and what they are numbered from."""
    if isinstance(dist, Categorical):
        return [dist.head_size], [dist.start]
    return dist.sizes, dist.start
