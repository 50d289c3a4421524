"""Policies as ONNX files, for programs without PyTorch, and the proof that they act the same."""

from __future__ import annotations

import copy
import io
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from operant.toolchain.files import export_file

Obs = Tensor | Mapping[str, Tensor]
"""Observations [B, *obs_shape], or of a tree a dict of such by path."""

Postprocess = Callable[[Tensor], Obs]
"""From a head [B, H] to the action [B, ...] of a deterministic policy, or a dict of such by path.
"""

_TOLERANCE = 1e-4  # Of 1 + |x|: float32 sums in another order.
_TIE = 1e-5  # Logits nearer than this may change places.


def export_onnx(
    policy: nn.Module,
    obs: Obs,
    path: Path,
    *,
    postprocess: Postprocess,
) -> None:
    """Write `policy` as one self-contained ONNX file, in its evaluation mode.

    The graph takes ``obs`` [B, *obs_shape], for any B, and gives ``action``
    (`postprocess` of the head), ``head`` [B, H] and ``value`` [B]. Of a Dict or Tuple observation
    it takes an input for each leaf, ``obs/PATH`` such as ``obs/camera``; of such an action it gives
    ``action/PATH``. Missing folders are made; the file appears when it is complete. Mode and device
    of the policy stay as they are.

    Args:
        policy: ``forward(obs)`` returns ``(head, value)``.
        obs: at least one observation of the kind that the policy takes, [B, *obs_shape]; of a tree
            a dict of leaves [B, ...] by path.
        path: where to.
        postprocess: a function of tensors on the policy's device, which becomes part of the graph.

    Raises:
        ValueError: packages are missing, the policy does something that ONNX cannot express, or
            the file cannot be written.
    """
    _need_packages()
    import onnx

    path = Path(path)
    device = _device(policy)
    leaves = _named("obs", obs)
    # Three: the exporter takes a batch of one for a size that is fixed.
    three = [x[:1].to(device).repeat(3, *[1] * (x.ndim - 1)) for x in leaves.values()]
    with _evaluating(policy), torch.no_grad(), _quiet():
        model = _convert(_Deployed(policy, postprocess, tuple(leaves)).eval(), three)
    _strip(model)
    onnx.checker.check_model(model)

    export_file(path, model.SerializeToString())


def verify_onnx(policy: nn.Module, obs: Obs, path: Path, postprocess: Postprocess) -> float:
    """Run the file on `obs` [B, *obs_shape], or a dict of leaves [B, ...] by path, all of it and
    one row; the largest difference.

    That is the largest absolute difference of head and value between onnxruntime and `policy`,
    both on the CPU (a GPU's TF32 differs by more than a wrong graph might).

    Raises:
        ValueError: onnxruntime is missing or cannot run the file; a head, value or float action
            that differs by more than 1e-4 (1 + abs(x)); or another integer action, except where
            the logits that decide it lie within 1e-5.
    """
    _need_packages()
    device = _device(policy)
    model = policy if device.type == "cpu" else copy.deepcopy(policy).cpu()
    leaves = {name: leaf.detach().cpu() for name, leaf in _named("obs", obs).items()}
    run = _runner(path)
    largest = 0.0
    for other in (False, True):
        batch = {name: _other_size(x) if other else x for name, x in leaves.items()}
        with _evaluating(model), torch.no_grad():
            head, value = model(_unnamed("obs", batch))
            actions = _named("action", postprocess(head.to(device)))
        theirs = run(batch)
        for name, ours in (("head", head), ("value", value)):
            largest = max(largest, _difference(name, ours, theirs[name]))
        for name, action in actions.items():
            if action.is_floating_point():
                _difference(name, action.cpu(), theirs[name])
            else:
                _compare_choices(action.cpu(), theirs[name], head, len(actions) > 1)
    return largest


def _named(what: str, tree: Obs) -> dict[str, Tensor]:
    """The tensors of a graph's input or output, by the names that they have there."""
    if isinstance(tree, Tensor):
        return {what: tree}
    return {f"{what}/{path}": leaf for path, leaf in tree.items()}


def _unnamed(what: str, named: Mapping[str, Tensor]) -> Obs:
    """What `_named` was given."""
    if what in named:
        return named[what]
    return {name.removeprefix(f"{what}/"): leaf for name, leaf in named.items()}


def _other_size(rows: Tensor) -> Tensor:
    """A batch of one, or of two where it is one already."""
    return rows[:1] if len(rows) > 1 else rows.repeat(2, *[1] * (rows.ndim - 1))


class _Deployed(nn.Module):
    """A policy and what makes an action of its head."""

    def __init__(
        self, policy: nn.Module, postprocess: Postprocess, inputs: tuple[str, ...]
    ) -> None:
        super().__init__()
        self.policy = policy
        self.postprocess = postprocess
        self.inputs = inputs

    def named(self, *leaves: Tensor) -> dict[str, Tensor]:
        """The outputs by their names in the graph."""
        head, value = self.policy(_unnamed("obs", dict(zip(self.inputs, leaves, strict=True))))
        return {**_named("action", self.postprocess(head)), "head": head, "value": value}

    def forward(self, *leaves: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.named(*leaves).values())


def _need_packages() -> None:
    if any(find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")):
        raise ValueError(
            "ONNX export needs onnx, onnxscript and onnxruntime: pip install 'operant[onnx]'"
        )


def _device(policy: nn.Module) -> torch.device:
    tensors = (*policy.parameters(), *policy.buffers())
    return tensors[0].device if tensors else torch.device("cpu")


@contextmanager
def _evaluating(policy: nn.Module) -> Iterator[None]:
    """All modules in evaluation mode; afterwards each in its own again."""
    modes = [(module, module.training) for module in policy.modules()]
    policy.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of its own deprecations, logs that torchvision is not installed, and
    prints graphs where it fails; what matters comes as an exception."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.fx")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        nowhere = io.StringIO()
        with warnings.catch_warnings(), redirect_stdout(nowhere), redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _convert(module: _Deployed, leaves: list[Tensor]) -> Any:
    """`module` as an onnx.ModelProto whose first axis is free.

    With torch.export's exporter: the older one, TorchScript's, is deprecated, and writes the batch
    size of the example into the graph where the code asks for ``len(obs)``. Handed to
    torch.onnx.export directly such a module would get a fixed batch size here too, without a word;
    torch.export refuses it, unless it is strict and so reads the code instead of running it.
    """
    batch = torch.export.Dim("batch")
    shapes = (tuple({0: batch} for _ in leaves),)
    failures: list[Exception] = []
    for strict in (False, True):
        try:
            program = torch.export.export(
                module, tuple(leaves), dynamic_shapes=shapes, strict=strict
            )
            outputs = list(module.named(*leaves))
            break
        except Exception as error:  # Whatever the policy's code or the tracer raises.
            failures.append(error)
    else:
        shown = [", ".join(["B", *map(str, leaf.shape[1:])]) for leaf in leaves]
        raise ValueError(
            f"the policy cannot be traced for observations [{'], ['.join(shown)}]: "
            f"{_root(failures[0])}"
        ) from failures[0]
    names: dict[str, Any] = {"input_names": list(module.inputs), "output_names": outputs}
    try:
        exported = torch.onnx.export(program, (), dynamo=True, verbose=False, **names)
    except torch.onnx.errors.OnnxExporterError as error:
        raise ValueError(f"ONNX cannot express the policy: {_root(error)}") from error
    assert exported is not None
    return exported.model_proto


def _root(error: BaseException) -> str:
    """The first line of what caused `error` in the first place."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip().partition("\n")[0]


def _strip(model: Any) -> None:
    """Call the free axis ``batch``, and drop the notes on where in the source code each node is
    from: they are a third of the file, and name folders of this machine."""
    graph = model.graph
    free = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param == free:
                axis.dim_param = "batch"
    for noted in (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info):
        del noted.metadata_props[:]
        noted.ClearField("doc_string")


def _runner(path: Path) -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]]:
    """A function that runs the file on the CPU; what goes wrong there is a ValueError."""
    onnxruntime: Any = import_module("onnxruntime")

    def attempt(do: Callable[[], Any]) -> Any:
        try:
            return do()
        except Exception as error:  # onnxruntime's exceptions have no common class.
            raise ValueError(f"onnxruntime cannot run {path}: {error}") from error

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # What fails comes as an exception, and need not be printed.
    where: dict[str, Any] = {"sess_options": options, "providers": ["CPUExecutionProvider"]}
    session = attempt(lambda: onnxruntime.InferenceSession(str(path), **where))

    outputs = [one.name for one in session.get_outputs()]

    def run(obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        inputs = {name: leaf.numpy() for name, leaf in obs.items()}
        arrays = attempt(lambda: session.run(outputs, inputs))
        return {name: torch.from_numpy(array) for name, array in zip(outputs, arrays, strict=True)}

    return run


def _difference(name: str, ours: Tensor, theirs: Tensor) -> float:
    """The largest absolute difference; ValueError if one is too large."""
    if ours.shape != theirs.shape:
        raise ValueError(
            f"the ONNX file's {name} has shape {list(theirs.shape)}, "
            f"the policy's {list(ours.shape)}; export it again"
        )
    ours, theirs = ours.double(), theirs.double()
    apart = torch.where(ours == theirs, 0.0, (ours - theirs).abs())  # Equal infinities are equal.
    wrong = ~(apart <= _TOLERANCE * (1 + ours.abs()))  # NaN is wrong.
    if wrong.any():
        raise ValueError(
            f"the ONNX file's {name} differs from the policy's: {theirs[wrong][0]:g} instead of "
            f"{ours[wrong][0]:g}; export it again"
        )
    return float(apart.max()) if apart.numel() else 0.0


def _compare_choices(ours: Tensor, theirs: Tensor, head: Tensor, one_of_many: bool = False) -> None:
    """ValueError where integer actions [B, ...] differ, though no logits of `head` are tied.

    With one choice a row the two largest logits decide. With several, or if they are `one_of_many`
    leaves, it is not known which logits belong together, so any two are taken for a tie.
    """
    if ours.shape == theirs.shape:
        gaps = head.sort(dim=-1).values.diff(dim=-1).nan_to_num(nan=math.inf)  # Of masked ones.
        nearest = gaps[:, -1:] if ours.ndim == 1 and not one_of_many else gaps
        decided = ~(nearest <= _TIE).any(dim=-1)
        differs = (ours != theirs).flatten(1).any(dim=-1) if ours.ndim > 1 else ours != theirs
        wrong = differs & decided
        if not wrong.any():
            return
        ours, theirs = ours[wrong][0], theirs[wrong][0]
    raise ValueError(
        f"the ONNX file acts differently: action {theirs.tolist()} instead of {ours.tolist()}; "
        "export it again"
    )
