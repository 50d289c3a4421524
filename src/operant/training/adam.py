"""Adam (Kingma and Ba, 2015) on one flat vector.

`torch.optim.Adam` would do, but its first use imports PyTorch's compiler, which takes longer than
training CartPole. Gradients arrive as one vector here anyway, so that adding, measuring and scaling
them is one operation each.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Adam:
    """The optimiser's state and step.

    ``gradient``, ``exp_avg`` and ``exp_avg_sq`` are float32 ``[P]``, the parameters one after the
    other; ``count`` is the number of steps taken.

    Args:
        parameters: changed in place by `step`.
        eps: added to the root of the second moment.

    Raises:
        ValueError: no parameters, or not in float32.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        eps: float = 1e-5,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        if not self.parameters:
            raise ValueError("the policy has no parameters to train")
        for parameter in self.parameters:
            if parameter.dtype != torch.float32:
                raise ValueError(f"the policy's parameters must be float32, got {parameter.dtype}")
        self.sizes = [parameter.numel() for parameter in self.parameters]
        self.gradient = torch.zeros(sum(self.sizes), device=self.parameters[0].device)
        self.exp_avg = torch.zeros_like(self.gradient)
        self.exp_avg_sq = torch.zeros_like(self.gradient)
        self.count = 0
        self.eps, self.betas = eps, betas

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Move the parameters by what ``gradient`` says."""
        beta1, beta2 = self.betas
        self.count += 1
        self.exp_avg.lerp_(self.gradient, 1 - beta1)
        self.exp_avg_sq.lerp_(self.gradient.square(), 1 - beta2)
        root = (self.exp_avg_sq / (1 - beta2**self.count)).sqrt_().add_(self.eps)
        move = self.exp_avg / root
        move *= -learning_rate / (1 - beta1**self.count)
        for parameter, piece in zip(self.parameters, torch.split(move, self.sizes), strict=True):
            parameter.add_(piece.view_as(parameter))

    @torch.no_grad()
    def step_on_gpu(self, gradient: Tensor, rate: Tensor, count: Tensor, active: Tensor) -> None:
        """A step whose every number is on the GPU, so that it can be captured in a graph.

        Args:
            gradient: float32 ``[P]``.
            rate: learning rate, a number in float64.
            count: float64 ``[1]``: steps taken so far; counted on. ``self.count`` is left alone.
            active: float32 ``[1]``: 1, or 0 for a step that moves nothing.
        """
        beta1, beta2 = self.betas
        count += active
        going = active > 0
        mean = self.exp_avg.lerp(gradient, 1 - beta1)
        square = self.exp_avg_sq.lerp(gradient.square(), 1 - beta2)
        self.exp_avg.copy_(torch.where(going, mean, self.exp_avg))
        self.exp_avg_sq.copy_(torch.where(going, square, self.exp_avg_sq))
        done = count.clamp(min=1)
        root = (square / (1 - beta2**done).float()).sqrt() + self.eps
        move = torch.where(going, mean / root * (-rate / (1 - beta1**done)).float(), 0.0)
        pieces = torch.split(move, self.sizes)
        views = [piece.view_as(p) for piece, p in zip(pieces, self.parameters, strict=True)]
        torch._foreach_add_(list[Tensor](self.parameters), views)
