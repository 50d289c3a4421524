"""Kernels of the `fused` engine on the CPU, for Numba; one idea a file.

What threads run: `rollout`, `advantages`, `update`. What these call, by address, see `unit`:

- `forward`, `backward`: a multilayer perceptron on a tile of samples; its heart are the register
  blocks of `blocks`, made of `simd` and `activations`.
- `sample_choices`, `sample_gaussian`: from outputs to actions; `noise` are their random numbers.
- `loss_choices`, `loss_gaussian`, with `loss_terms`: from outputs to the gradient of PPO's loss, by
  the formulas of `operant.ppo.closed_form`, which `words` makes instructions of.
- `encode`: observations as inputs. `keep`: what environments answered.
- `order`, with `chunks` and `shuffle`: which samples a thread trains on.
- `weights`: parameters as kernels read them, and Adam's step.

Where things are: `plan` finds places for a policy's networks; `table`, `layout` and `pieces` name
what kernels are told. `compiled` loads the kernels; `waiting` is for threads that have to.

All kernels work on plain pointers, float32. A *tile* is some samples that go through the networks
together; its activations are sample-major, ``[TILE, width]``, so that neurons are the lanes of a
vector; a network's outputs are ``[outputs, TILE]``, so that samples are.
"""
