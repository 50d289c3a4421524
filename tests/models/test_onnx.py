"""Exported policies act in onnxruntime as they do in PyTorch."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from gymnasium import spaces
from onnx import helper
from torch import Tensor, nn

from operant.models import Joint, policy_for
from operant.models import onnx as ours
from operant.models.onnx import export_onnx, verify_onnx
from operant.spaces import flatten, layout


class Policy(nn.Module):
    """Two actions from four numbers, with a running normaliser and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([1.0, -2.0, 0.0, 3.0], dtype=torch.float64))
        self.register_buffer("var", torch.tensor([4.0, 1.0, 0.25, 9.0], dtype=torch.float64))
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5))
        self.head = nn.Linear(8, 2)
        self.value = nn.Linear(8, 1)
        self.batches: list[int] = []

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        if not torch.compiler.is_compiling():
            self.batches.append(obs.shape[0])
        x = ((obs - self.mean.float()) * (self.var.float() + 1e-8).rsqrt()).clamp(-10, 10)
        x = self.body(x)
        return self.head(x), self.value(x).squeeze(-1)


class Images(nn.Module):
    """Means from small uint8 images; asks for the batch size as users do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 4)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        x = self.layer(obs.reshape(len(obs), 12).float() / 255)
        return x[:, :3], x[:, 3]


def greedy(head: Tensor) -> Tensor:
    return head.argmax(-1)


def clipped(head: Tensor) -> Tensor:
    return head.clamp(-0.1, 0.1)


def sample(count: int) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(0)) * 3


@pytest.fixture(scope="module")
def policy() -> Policy:
    torch.manual_seed(0)
    policy = Policy()
    policy.head.eval()  # The others stay in training mode.
    return policy


@pytest.fixture(scope="module")
def path(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "new" / "policy.onnx"
    export_onnx(policy, sample(1), path, postprocess=greedy)
    return path


def test_graph_has_named_outputs_and_a_free_batch(path: Path) -> None:
    model = onnx.load(path)
    shapes = {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {
        "obs": ["batch", 4],
        "action": ["batch"],
        "head": ["batch", 2],
        "value": ["batch"],
    }
    assert [value.name for value in model.graph.output] == ["action", "head", "value"]


def test_file_is_complete_and_tells_nothing_of_the_machine(path: Path) -> None:
    assert os.listdir(path.parent) == ["policy.onnx"]
    model = onnx.load(path, load_external_data=False)
    assert all(tensor.data_location == tensor.DEFAULT for tensor in model.graph.initializer)
    content = path.read_bytes()
    assert b"test_onnx" not in content
    assert b".py" not in content


@pytest.mark.parametrize("count", [1, 5, 64])
def test_onnxruntime_computes_the_same(policy: Policy, path: Path, count: int) -> None:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    obs = sample(count)
    action, head, value = session.run(["action", "head", "value"], {"obs": obs.numpy()})
    policy.eval()
    with torch.no_grad():
        expected_head, expected_value = policy(obs)
    policy.train()
    policy.head.eval()
    np.testing.assert_allclose(head, expected_head, atol=1e-6)
    np.testing.assert_allclose(value, expected_value, atol=1e-6)
    assert action.dtype == np.int64
    np.testing.assert_array_equal(action, expected_head.argmax(-1))
    assert count < 64 or 0 < action.mean() < 1


def test_export_leaves_the_policy_alone(policy: Policy, path: Path) -> None:
    assert policy.training
    assert policy.body[2].training
    assert not policy.head.training
    assert policy.mean.dtype == torch.float64
    assert {tensor.device.type for tensor in policy.state_dict().values()} == {"cpu"}
    assert all(parameter.requires_grad for parameter in policy.parameters())


def test_images_means_and_len_without_a_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    model = Images()
    file = tmp_path / "images.onnx"
    obs = torch.randint(0, 256, (9, 2, 2, 3), dtype=torch.uint8)
    export_onnx(model, obs, file, postprocess=clipped)
    assert verify_onnx(model, obs, file, clipped) < 1e-6
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ValueError, match=r"action differs from the policy's: -?0\.1 instead of"):
        verify_onnx(model, obs, file, lambda head: head.clamp(-0.2, 0.2))


@pytest.mark.parametrize("name", ["torch.onnx", "torch.fx"])
def test_the_exporters_logs_are_silenced_for_a_while(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    logger = logging.getLogger(name)
    monkeypatch.setattr(logger, "level", logging.INFO)
    with ours._quiet():
        assert not logger.isEnabledFor(logging.WARNING)
    assert logger.level == logging.INFO


# --- Verification ------------------------------------------------------------------------------


def test_verification_measures_at_two_batch_sizes(policy: Policy, path: Path) -> None:
    policy.batches.clear()
    assert 0 <= verify_onnx(policy, sample(32), path, greedy) < 1e-5
    assert policy.batches == [32, 1]
    assert verify_onnx(policy, sample(1), path, greedy) < 1e-5
    assert policy.batches == [32, 1, 1, 2]
    assert policy.training
    assert not policy.head.training


@pytest.mark.parametrize("name", ["head", "value"])
def test_verification_sees_other_weights(policy: Policy, path: Path, name: str) -> None:
    bias = policy.get_parameter(f"{name}.bias")
    before = bias.detach().clone()
    try:
        with torch.no_grad():
            bias += 1e-5
        assert verify_onnx(policy, sample(8), path, greedy) == pytest.approx(1e-5, rel=0.1)
        with torch.no_grad():
            bias += 1e-3
        with pytest.raises(ValueError, match=f"{name} differs from the policy's"):
            verify_onnx(policy, sample(8), path, greedy)
    finally:
        bias.data = before


def test_verification_sees_other_actions(policy: Policy, path: Path) -> None:
    with pytest.raises(ValueError, match=r"acts differently: action [01] instead of [01]"):
        verify_onnx(policy, sample(8), path, lambda head: head.argmin(-1))
    with pytest.raises(ValueError, match=r"acts differently: action .* instead of"):
        verify_onnx(policy, sample(8), path, lambda head: head.argmax(-1, keepdim=True))


def test_verification_of_what_is_no_such_file(
    policy: Policy, path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=r"onnxruntime cannot run .*none\.onnx"):
        verify_onnx(policy, sample(8), tmp_path / "none.onnx", greedy)
    with pytest.raises(ValueError, match=r"onnxruntime cannot run .*policy\.onnx"):
        verify_onnx(Images(), torch.zeros(8, 12), path, clipped)
    # A graph that fails while it runs: onnxruntime would print that too.
    size = helper.make_tensor("size", onnx.TensorProto.INT64, [2], [3, 4])
    nodes = [helper.make_node("Reshape", ["obs", "size"], ["head"])]
    nodes += [helper.make_node("Identity", ["head"], [name]) for name in ("action", "value")]
    values = [helper.make_tensor_value_info("obs", onnx.TensorProto.FLOAT, ["batch", 4])]
    values += [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 4])
        for name in ("action", "head", "value")
    ]
    graph = helper.make_graph(nodes, "fixed", values[:1], values[1:], [size])
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "f.onnx")
    with pytest.raises(ValueError, match=r"onnxruntime cannot run .*f\.onnx"):
        verify_onnx(policy, sample(8), tmp_path / "f.onnx", greedy)
    assert capfd.readouterr() == ("", "")


def test_differences_are_relative_to_one_plus_the_value() -> None:
    inf, nan = float("inf"), float("nan")
    assert ours._difference("x", torch.tensor([1e6]), torch.tensor([1e6 + 50])) == 50
    assert ours._difference("x", torch.tensor([-inf, 1.0]), torch.tensor([-inf, 1.0])) == 0
    assert ours._difference("x", torch.zeros(0), torch.zeros(0)) == 0
    with pytest.raises(ValueError, match="instead of 1e"):
        ours._difference("x", torch.tensor([1e6]), torch.tensor([1e6 + 200]))
    with pytest.raises(ValueError, match="nan instead of 0"):
        ours._difference("x", torch.tensor([0.0]), torch.tensor([nan]))
    with pytest.raises(ValueError, match=r"x has shape \[2\], the policy's \[1\]"):
        ours._difference("x", torch.zeros(1), torch.zeros(2))


@pytest.mark.parametrize(
    ("logits", "one", "other", "excused"),
    [
        ([0.0, 1.0, 1.000001], 1, 2, True),
        ([0.0, 1.0, 1.001], 1, 2, False),
        ([1.0, 1.0, 5.0], 0, 2, False),  # Tied, but not on top.
        ([-float("inf"), -float("inf"), 1.0], 0, 2, False),
        ([3.0], 0, 1, False),
        ([0.0, 1.0, 7.0, 7.000001], [1, 0], [1, 1], True),
        ([0.0, 1.0, 7.0, 7.001], [1, 0], [1, 1], False),
        ([-float("inf"), -float("inf"), 7.0, 9.0], [0, 0], [0, 1], False),
    ],
)
def test_actions_may_differ_where_logits_are_tied(
    logits: list[float], one: object, other: object, excused: bool
) -> None:
    head = torch.tensor([logits, logits])
    actions = torch.tensor([one, one]), torch.tensor([one, other])
    ours._compare_choices(actions[0], actions[0], head)
    if excused:
        ours._compare_choices(*actions, head)
    else:
        with pytest.raises(ValueError, match="acts differently"):
            ours._compare_choices(*actions, head)


# --- What is refused ---------------------------------------------------------------------------


class Branching(nn.Module):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        head = obs + 1 if float(obs.sum()) > 0 else obs
        return head, head[:, 0]


class Broken(nn.Module):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        raise RuntimeError("broken on purpose")


class Eigen(nn.Module):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return torch.linalg.eigvals(obs).real, obs[:, 0, 0]


def test_a_policy_that_cannot_be_traced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"cannot be traced for observations \[B, 3\]: .*guard"):
        export_onnx(Branching(), torch.zeros(1, 3), tmp_path / "a.onnx", postprocess=greedy)
    with pytest.raises(ValueError, match=r"observations \[B\]: broken on purpose$"):
        export_onnx(Broken(), torch.zeros(1), tmp_path / "a.onnx", postprocess=greedy)
    assert os.listdir(tmp_path) == []
    assert capfd.readouterr() == ("", "")


def test_a_policy_that_onnx_cannot_express(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ONNX cannot express the policy: .*linalg_eig"):
        export_onnx(Eigen(), torch.zeros(1, 3, 3), tmp_path / "a.onnx", postprocess=greedy)


def test_unwritable_places(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        def SerializeToString(self) -> bytes:
            return b"new"

    monkeypatch.setattr(ours, "_convert", lambda module, example: Model())
    monkeypatch.setattr(ours, "_strip", lambda model: None)
    monkeypatch.setattr(onnx.checker, "check_model", lambda model: None)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.onnx").mkdir()
    for place in (tmp_path / "file" / "a.onnx", tmp_path / "folder.onnx"):
        with pytest.raises(ValueError, match=r"cannot write .*\.onnx: .*writable folder"):
            export_onnx(policy, sample(1), place, postprocess=greedy)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.onnx"]
    assert policy.training


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_missing_packages(
    policy: Policy, path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(ours, "find_spec", lambda name: None if name == missing else object())
    message = r"needs onnx, onnxscript and onnxruntime: pip install 'operant\[onnx\]'$"
    with pytest.raises(ValueError, match=message):
        export_onnx(policy, sample(1), path, postprocess=greedy)
    with pytest.raises(ValueError, match=message):
        verify_onnx(policy, sample(2), path, greedy)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_policy_on_the_gpu_stays_there(tmp_path: Path) -> None:
    model = Policy().cuda()
    low = torch.tensor(-0.1, device="cuda")

    def bounded(head: Tensor) -> Tensor:
        return head.clamp(low, -low)

    export_onnx(model, sample(1), tmp_path / "a.onnx", postprocess=bounded)
    assert verify_onnx(model, sample(32).cuda(), tmp_path / "a.onnx", bounded) < 1e-5
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"cuda"}


def test_trees_have_an_input_and_an_output_for_each_leaf(tmp_path: Path) -> None:
    pixels = {"camera": (12, 12), "photo": (3, 40, 40)}
    space = spaces.Dict(
        {
            "arm": spaces.Tuple([spaces.Box(-9, 9, (2,), np.float64)]),
            "bits": spaces.MultiBinary(3),
            "grid": spaces.Box(0, 9, (10, 10, 3), np.uint8),
            "many": spaces.Discrete(3000, start=-7),
            "tool": spaces.Discrete(4, start=2),
            "value": spaces.Box(0, 9, (), np.int32),
            **{name: spaces.Box(0, 255, shape, np.uint8) for name, shape in pixels.items()},
        }
    )
    actions = spaces.Dict(
        {
            "button": spaces.Discrete(3, start=1),
            "lamps": spaces.MultiBinary((2, 2)),
            "move": spaces.Tuple([spaces.Box(-1, 1, (2,))]),
        }
    )
    torch.manual_seed(0)
    model = policy_for(space, actions, hidden=(8,), normalize_obs=True)
    joint = model.distribution
    assert isinstance(joint, Joint)
    space.seed(0)
    rows = torch.from_numpy(flatten(space, [space.sample() for _ in range(9)]))
    assert model.obs_normalizer is not None
    model.obs_normalizer.update(rows)
    obs = layout(space).split(rows)
    file = tmp_path / "tree.onnx"

    def action(head: Tensor) -> dict[str, Tensor]:
        return joint.leaves(joint.mode(head))

    export_onnx(model, obs, file, postprocess=action)
    assert verify_onnx(model, obs, file, action) < 1e-5
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == [f"obs/{path}" for path in obs]
    names = [one.name for one in session.get_outputs()]
    assert names == ["action/button", "action/lamps", "action/move/0", "head", "value"]
    types = {one.name: one.type for one in session.get_inputs()}
    assert types["obs/camera"] == "tensor(uint8)"
    assert types["obs/arm/0"] == "tensor(double)"
    inputs = {f"obs/{path}": leaf.numpy() for path, leaf in obs.items()}
    found = dict(zip(names, session.run(names, inputs), strict=True))
    with torch.no_grad():
        wanted = action(model(obs)[0])
    np.testing.assert_array_equal(found["action/button"], wanted["button"])
    np.testing.assert_allclose(found["action/move/0"], wanted["move/0"], atol=1e-5)
    with torch.no_grad():
        model.actor_head.bias += 1
    with pytest.raises(ValueError, match="head differs"):
        verify_onnx(model, obs, file, action)
