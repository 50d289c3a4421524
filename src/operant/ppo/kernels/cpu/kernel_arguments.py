"""The arguments of all kernels: one record, which every kernel is given the address of."""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, int64, uint8, uint64
from numba.np.numpy_support import as_dtype

from operant.ppo.kernels.cpu.record import Field, Kind, RecordSpec, array, function, memory, number

ARGUMENTS = RecordSpec(
    "kernel arguments",
    # Sizes. A tile is some samples that go through the networks together.
    number("steps"),
    number("envs"),
    number("tile"),
    number("env_tiles"),
    number("chunks"),
    number("minibatches"),
    # Of a shard: the columns of a rollout that are its own, the minibatch it is at, and mean and
    # inverse deviation of the advantages of each minibatch.
    number("shards"),
    number("shard_first", optional=True),
    number("row_envs", optional=True),
    number("minibatch", optional=True),
    array("spreads", float32, optional=True),
    # The policy's random numbers.
    number("first_step"),
    number("first_row"),
    number("seed_low"),
    number("seed_high"),
    number("noise_blocks"),
    # Actions: categories of each part, or bounds of each component.
    number("action_kind"),
    number("parts"),
    array("sizes", int64, optional=True),
    array("starts", int64, optional=True),
    array("lows", float32, optional=True),
    array("highs", float32, optional=True),
    number("mask_size"),
    number("mask_rows"),
    # Networks, see `network_layout`: one or two, the actor first.
    number("nets"),
    memory("actor"),
    memory("critic"),
    number("actor_outputs"),
    number("value_row"),
    number("activation"),
    array("weights", float32),
    number("log_std"),
    number("d_log_std"),
    # Observations as inputs.
    number("encoding"),
    number("input_size"),
    number("x_row"),
    number("obs_words"),
    number("one_hot_parts"),
    array("one_hot_sizes", int64, optional=True),
    array("one_hot_starts", int64, optional=True),
    number("normalize"),
    array("obs_mean", float32, optional=True),
    array("obs_scale", float32, optional=True),
    array("obs_limit", float32, optional=True),
    # Scratch memory: float32 a thread, and offsets in it.
    memory("scratch"),
    number("scratch_size"),
    number("scratch_x"),
    number("scratch_noise"),
    number("scratch_action"),
    number("scratch_data"),
    number("scratch_work"),
    number("scratch_options"),
    # Environments that kernels step themselves.
    function("env_step", optional=True),
    memory("env_arguments", optional=True),
    number("env_lanes", optional=True),
    number("now_us", optional=True),
    memory("env_obs", optional=True),
    memory("env_final_obs", optional=True),
    array("env_reward", float32, optional=True),
    array("env_terminated", uint8, optional=True),
    array("env_truncated", uint8, optional=True),
    array("env_report_return", float32, optional=True),
    array("env_report_length", int32, optional=True),
    array("env_finished", int64, optional=True),
    # What all environments are given and ask for.
    array("env_actions", int64, optional=True),
    array("env_action_mask", uint8, optional=True),
    # The step that `act` answers, of environments that others step.
    number("act_step", optional=True),
    # The rollout, time-major.
    memory("obs"),
    memory("action"),
    array("action_mask", uint8, optional=True),
    array("log_prob", float32),
    array("value", float32),
    array("reward", float32),
    array("terminated", uint8),
    array("truncated", uint8),
    array("final_value", float32),
    array("last_value", float32),
    array("advantage", float32),
    array("target", float32),
    array("bad", int64, optional=True),
    # Episodes that ended, by tile.
    number("episode_capacity", optional=True),
    array("episode_counts", int64, optional=True),
    array("episode_index", int64, optional=True),
    array("episode_return", float32, optional=True),
    array("episode_length", int32, optional=True),
    array("episode_cut", uint8, optional=True),
    # Final observations of those cut short, or of all, by tile.
    number("final_capacity"),
    number("every_final"),
    array("final_counts", int64),
    array("final_index", int64),
    memory("final_obs"),
    # Advantages, and samples packed for the update.
    array("traces", float32),
    array("discounts", float32),
    memory("samples"),
    number("sample_row"),
    number("sample_data"),
    # The update.
    array("order", int32),
    array("keys", uint64),
    array("moments", float64),
    memory("gradients"),
    number("gradient_size"),
    memory("metric_sums"),
    array("option_values", float32),
    array("results", float64),
    array("control", int64),
    # Parameters, see `parameter_layout`, and Adam's memory.
    memory("parameters"),
    number("parameter_tensors"),
    array("flat", float32),
    number("flat_size"),
    array("exp_avg", float32),
    array("exp_avg_sq", float32),
    array("rates", float64),
    # Compiled functions that others call.
    function("encode"),
    function("expand_one_hot", optional=True),
    function("forward"),
    function("backward"),
    function("sample"),
    function("store_step", optional=True),
    function("loss"),
    function("order_chunk"),
    function("finish"),
)


class KernelArguments:
    """Arguments by name; arrays are held alive and passed as their addresses.

    Args:
        spec: what is declared.
    """

    def __init__(self, spec: RecordSpec = ARGUMENTS) -> None:
        self.spec = spec
        self.arrays: dict[str, np.ndarray] = {}
        self._words = np.zeros(len(spec.fields), np.int64)
        self._missing = {field.name for field in spec.fields if not field.optional}

    def copy(self) -> KernelArguments:
        """The same arguments, to be changed; the arrays are shared."""
        other = KernelArguments(self.spec)
        other.arrays, other._missing = dict(self.arrays), set(self._missing)
        other._words[:] = self._words
        return other

    def set(self, **values: int | np.ndarray) -> None:
        """Set some arguments; those set before are replaced.

        Raises:
            TypeError: an argument is not declared, or a value is not what is declared.
            ValueError: an array is not contiguous.
        """
        self.spec.check_names(values)
        for name, value in values.items():
            index = self.spec.index[name]
            self._words[index] = self._word(self.spec.fields[index], value)
            self._missing.discard(name)

    def __getitem__(self, name: str) -> int:
        """The word of an argument as kernels find it: a number, or an address."""
        self.spec.check_names((name,))
        return int(self._words[self.spec.index[name]])

    @property
    def address(self) -> int:
        """Where the record is, to call a kernel with.

        Raises:
            TypeError: an argument has not been set that is not optional.
        """
        if self._missing:
            missing = ", ".join(sorted(self._missing))
            raise TypeError(f"{self.spec.name}: {missing} not set; set() them before a kernel runs")
        address: int = self._words.ctypes.data
        return address

    def _word(self, field: Field, value: int | np.ndarray) -> int:
        if field.kind in (Kind.NUMBER, Kind.FUNCTION):
            if not isinstance(value, int | np.integer | np.bool_):
                raise TypeError(f"{field.name}: expected a {field.kind.value}, got {value!r}")
            return int(value)
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{field.name}: expected an array, got {value!r}")
        dtype = np.dtype(np.uint8) if value.dtype == np.bool_ else value.dtype
        if field.kind is Kind.ARRAY and dtype != as_dtype(field.dtype):
            raise TypeError(f"{field.name}: expected {field.dtype}, got an array of {value.dtype}")
        if not value.flags.c_contiguous:
            raise ValueError(f"{field.name}: expected a C-contiguous array; pass a copy")
        self.arrays[field.name] = value
        address: int = value.ctypes.data
        return address
