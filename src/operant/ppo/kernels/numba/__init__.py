"""Kernels of the `fused` engine on the CPU, for Numba; one idea a file.

- `simd`: vectors of the machine's own width, and the formulas of activations on them.
- `blocks`: the register-sized matrix product that does all the work.
- `network`: a multilayer perceptron, forward and backward, on a tile of samples.
- `words`: exp, log, the closed forms of `operant.ppo.closed_form`, compiled.
- `heads`: from a network's outputs to actions, or to the gradient of PPO's loss.
- `shuffle`: which sample comes when, by a bijective hash.
- `rollout`, `advantages`, `update`: what threads run; entry points, cached on disk.
- `plan`: where everything is; the only one that knows PyTorch's parameters.

All kernels work on plain pointers, float32. A *tile* is some samples that go through the networks
together; its activations are sample-major, ``[tile, width]``, so that neurons are the lanes of a
vector; a network's outputs are ``[outputs, tile]``, so that samples are.
"""
