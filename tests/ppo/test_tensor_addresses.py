"""`TensorAddresses` notices whatever gives a module other tensors, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from operant.ppo.engines.tensor_addresses import TensorAddresses


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("table", torch.zeros(3), persistent=False)
        self.register_buffer("later", None)


def other_memory(net: Net) -> None:
    net.body[0].weight.data = net.body[0].weight.data.clone()


def other_parameter(net: Net) -> None:
    net.body[0].bias = nn.Parameter(torch.zeros(4))


def other_bias(net: Net) -> None:
    net.body[2].bias = nn.Parameter(torch.zeros(2))


def other_layer(net: Net) -> None:
    net.body[2] = nn.Linear(4, 2, bias=False)


def without_tensors(net: Net) -> None:
    net.body[1] = nn.ReLU()


def more(net: Net) -> None:
    net.body.append(nn.ReLU())


def other_buffer(net: Net) -> None:
    net.norm.running_mean = torch.zeros(2)


def other_table(net: Net) -> None:
    net.table = torch.ones(3)


def a_buffer(net: Net) -> None:
    net.later = torch.ones(3)


def assigned(net: Net) -> None:
    net.load_state_dict({k: v.clone() for k, v in net.state_dict().items()}, assign=True)


CHANGES = [
    other_memory,
    other_parameter,
    other_bias,
    other_layer,
    without_tensors,
    more,
    other_buffer,
    other_table,
    a_buffer,
    assigned,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_it_notices(change: Callable[[Net], None]) -> None:
    net = Net()
    addresses = TensorAddresses(net)
    assert not addresses.changed()
    change(net)
    assert addresses.changed()
    assert not TensorAddresses(net).changed()


def test_changes_in_place_are_none() -> None:
    net = Net()
    addresses = TensorAddresses(net)
    net.load_state_dict(Net().state_dict())
    with torch.no_grad():
        net.body[0].weight.add_(1)
    net.norm(torch.randn(5, 2))
    net.eval()
    assert not addresses.changed()
