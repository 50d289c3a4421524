"""What kernels are told of a network: a record, followed by one for each hidden layer."""

from __future__ import annotations

from numba import njit

from operant.ppo.kernels.cpu.record import RecordSpec, number, record_at

NETWORK = RecordSpec(
    "network",
    number("depth"),
    number("outputs"),
    # Offsets in the packed weights, in a gradient, and in a thread's scratch memory.
    number("head_w"),
    number("head_bias"),
    number("head_gradient"),
    number("head_bias_gradient"),
    number("out"),
    number("d_out"),
    number("d_one"),
    number("d_two"),
)
LAYER = RecordSpec(
    "layer",
    number("inputs"),
    number("neurons"),
    number("width"),  # neurons in whole vectors
    number("row"),  # the distance of samples' activations
    # Offsets, as in a network. `saved` is what the backward pass computes slopes from.
    number("w_forward"),
    number("w_backward"),
    number("bias"),
    number("gradient"),
    number("bias_gradient"),
    number("active"),
    number("saved"),
)
NETWORK_BYTES, LAYER_BYTES = NETWORK.bytes, LAYER.bytes


@njit(nogil=True, error_model="numpy")
def layer_at(net_address, k):
    """Hidden layer `k` of the network at an address."""
    return record_at(LAYER, net_address + NETWORK_BYTES + LAYER_BYTES * k)
