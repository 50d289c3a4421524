"""Adam, against PyTorch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from operant.training.adam import Adam


def test_it_moves_as_pytorch_does():
    torch.manual_seed(0)
    ours, theirs = nn.Linear(7, 5), nn.Linear(7, 5)
    theirs.load_state_dict(ours.state_dict())
    adam = Adam(ours.parameters(), eps=1e-5)
    oracle = torch.optim.Adam(theirs.parameters(), eps=1e-5)
    for k in range(50):
        rate = 1e-2 / (k + 1)
        for parameter in theirs.parameters():
            parameter.grad = torch.randn_like(parameter) * 10.0 ** (k % 5 - 3)
        adam.gradient.copy_(torch.cat([p.grad.flatten() for p in theirs.parameters()]))
        oracle.param_groups[0]["lr"] = rate
        oracle.step()
        adam.step(rate)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    assert adam.count == 50


def test_frozen_parameters_stay():
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    adam = Adam(model.parameters())
    assert adam.gradient.shape == (6,)
    before = model.bias.clone()
    adam.gradient.fill_(1.0)
    adam.step(0.1)
    assert torch.equal(model.bias, before)


def test_nothing_to_train():
    with pytest.raises(ValueError, match="no parameters"):
        Adam([])
