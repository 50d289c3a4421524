"""Kernels of the `fused` engine on the CPU, for Numba; one idea a file.

What threads run: `collect`, or `act` where others step the environments, `estimate_advantages`,
`train_epoch`. What these call, by address, see `compiled_function`:

- `forward`, `backward`: a multilayer perceptron on a tile of samples; its heart are the register
  blocks of `blocks`, made of `simd` and `activations`.
- `sample_categorical`, `sample_gaussian`: from outputs to actions; `noise` are their random
  numbers.
- `loss_categorical`, `loss_gaussian`, with `loss_terms`: from outputs to the gradient of PPO's
  loss, by the formulas of `operant.ppo.closed_form`, which `closed_forms` makes instructions of.
- `policy_tile`: the policy on some environments, from observations to outputs.
- `encode`: observations as inputs. `store_step`: what environments answered.
- `order_chunk`, with `chunks` and `shuffle`: which samples a thread trains on.
- `weights`: parameters as kernels read them, and Adam's step.

What kernels are told has names, see `record`: `kernel_arguments`, `network_layout` and
`parameter_layout` declare them, `layout` has the rows of arrays and other numbers; `kernel_plan`
finds memory for a policy's networks. `alias_scopes` names the memory that does not overlap.
`compilation` loads the kernels; `waiting` is for threads that have to.

All kernels work on plain pointers, float32. A *tile* is some samples that go through the networks
together; its activations are sample-major, ``[TILE, width]``, so that neurons are the lanes of a
vector; a network's outputs are ``[outputs, TILE]``, so that samples are.
"""
