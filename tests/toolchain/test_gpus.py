"""Which GPUs there are, and what is said where there is none or too little memory."""

from __future__ import annotations

import pytest
import torch

import operant
from operant.compiler.compile_error import FallbackWarning
from operant.compiler.spec.rules import Rules
from operant.envs import CartPole
from operant.toolchain import gpus as gpus
from operant.toolchain.errors import CompileError
from operant.vector import make as make_module


@pytest.fixture
def no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def pretend_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    for module in (gpus, make_module):
        monkeypatch.setattr(module, "gpu_count", lambda: count)
    monkeypatch.setattr(gpus, "has_triton", lambda: True)
    monkeypatch.setattr(gpus, "torch_has_cuda", lambda: True)


@pytest.mark.usefixtures("no_interpreter")
def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, 0)
    for backend in ("cuda", "cuda:0", "cuda:7"):
        with pytest.raises(ValueError, match="'cuda' needs an NVIDIA GPU, and this machine has"):
            operant.make("CartPole-v1", 4, backend=backend)
    assert operant.make("CartPole-v1", 4).backend == "cpu"  # auto


@pytest.mark.usefixtures("no_interpreter")
def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, 1)
    monkeypatch.setattr(gpus, "has_triton", lambda: False)
    with pytest.raises(ValueError, match="needs triton, which is not installed: pip install"):
        operant.make("CartPole-v1", 4, backend="cuda")
    assert operant.make("CartPole-v1", 4).backend == "cpu"


@pytest.mark.usefixtures("no_interpreter")
@pytest.mark.parametrize(
    ("count", "backend", "message"),
    [
        (1, "cuda:7", "no backend 'cuda:7'; this machine has one GPU, cuda:0"),
        (3, "cuda:3", "no backend 'cuda:3'; this machine has GPUs cuda:0 to cuda:2"),
        (3, "cuda:-1", "no backend 'cuda:-1'"),
        (3, "cuda:one", "no backend 'cuda:one'"),
    ],
)
def test_a_gpu_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, count: int, backend: str, message: str
) -> None:
    pretend_gpus(monkeypatch, count)
    with pytest.raises(ValueError, match=message):
        operant.make("CartPole-v1", 4, backend=backend)


def test_interpreted_there_is_one(interpreter: None) -> None:
    assert operant.make("CartPole-v1", 2, backend="cuda:0").backend == "cuda"
    with pytest.raises(ValueError, match="no backend 'cuda:7'; this machine has one GPU, cuda:0"):
        operant.make("CartPole-v1", 2, backend="cuda:7")
    assert operant.make("CartPole-v1", 2).backend == "cpu"  # auto: that is for tests


@pytest.mark.usefixtures("no_interpreter")
def test_a_gpu_that_refuses_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise CompileError("operant.cu(3): error: no such thing\n1 error detected")

    pretend_gpus(monkeypatch, 1)
    monkeypatch.setattr(make_module, "_on_gpu", refuse)
    with pytest.warns(
        FallbackWarning, match="CartPole runs on backend 'cpu', not on the GPU: "
    ) as w:
        batch = operant.make("CartPole-v1", 2)
    assert w[0].filename == __file__
    reason = "auto: cuda does not work here: operant.cu(3): error: no such thing"
    assert (batch.backend, batch.backend_reason) == ("cpu", reason)
    monkeypatch.setattr(
        "operant.backends.cpu.kernels.kernels_source", lambda *_: "this is no program"
    )
    with pytest.warns(FallbackWarning) as warned:
        batch = operant.make("CartPole-v1", 2)
    assert len(warned) == 2
    assert batch.backend == "reference"
    assert batch.backend_reason.startswith(f"{reason}; auto: cpu does not work here: SyntaxError")


def test_a_kernel_that_triton_refuses_is_one_sentence(
    interpreter: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compiled by its first launch."""
    from operant.vector import gpu_numbers as triton

    real = triton.kernels_source
    said = "CartPole cannot be compiled for backend 'cuda': "
    words = {"import triton": "this is no program", "tl.load(": "nothing_of_this_name("}
    for word, other in words.items():  # the one is met at once, the other in the kernel
        text = real(Rules.of(CartPole), "").replace(word, other)
        monkeypatch.setattr(triton, "kernels_source", lambda *_, text=text: text)
        with pytest.raises(CompileError, match=said) as caught:
            operant.make("CartPole-v1", 2, backend="cuda").reset(seed=0)
        assert "\n" not in str(caught.value)


def test_a_batch_of_arrays_cannot_be_on_a_gpu() -> None:
    for backend in ("cuda", "cuda:1"):
        with pytest.raises(ValueError, match=r"holds tensors: make it with operant\.make\(\)"):
            operant.VecEnv(CartPole, 4, backend=backend)
    with pytest.raises(ValueError, match="'auto', 'reference', 'cpu' or 'cuda', got 'cudaa'"):
        operant.make("CartPole-v1", 4, backend="cudaa")


def test_counting_gpus_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(gpus.ctypes, "CDLL", missing)
    assert gpus.gpu_count.__wrapped__() == 0


class Driver:
    """A driver that counts three GPUs, or fails."""

    def __init__(self, init: int = 0, count: int = 0) -> None:
        self.codes = init, count

    def cuInit(self, flags: int) -> int:
        return self.codes[0]

    def cuDeviceGetCount(self, pointer) -> int:  # type: ignore[no-untyped-def]
        pointer._obj.value = 3
        return self.codes[1]


@pytest.mark.parametrize(
    ("driver", "count"), [(Driver(), 3), (Driver(init=100), 0), (Driver(count=3), 0)]
)
def test_counting_gpus(monkeypatch: pytest.MonkeyPatch, driver: Driver, count: int) -> None:
    monkeypatch.setattr(gpus.ctypes, "CDLL", lambda name: driver)
    assert gpus.gpu_count.__wrapped__() == count


def test_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 GiB free and 2 GiB that PyTorch keeps without using them; 100 bytes for each."""
    gib = 2**30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * gib, 80 * gib))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * gib)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: gib)
    gpu = torch.device("cuda", 0)
    fits = 12 * gib // 100
    gpus.check_memory(gpu, fits, 100, "a batch")
    gpus.check_memory(torch.device("cpu"), 10**15, 100, "a batch")
    with pytest.raises(MemoryError) as caught:
        gpus.check_memory(gpu, 4 * fits, 100, "a batch")
    assert str(caught.value) == (
        f"a batch of {4 * fits:,} environments takes 48.0 GiB, and cuda:0 has 12.0 of 80 GiB left: "
        f"about {int(0.95 * 12 * gib) // 100:,} environments would fit"
    )


@pytest.mark.usefixtures("no_interpreter")
def test_without_cuda_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, 1)
    monkeypatch.setattr(gpus, "torch_has_cuda", lambda: False)
    with pytest.raises(ValueError, match="needs PyTorch built for CUDA"):
        operant.make("CartPole-v1", 4, backend="cuda")
    assert operant.make("CartPole-v1", 4).backend == "cpu"


def test_how_torch_was_built() -> None:
    import torch

    assert gpus.torch_has_cuda() == (torch.version.cuda is not None)
