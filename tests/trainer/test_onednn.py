"""Linear layers by oneDNN give what torch's own give, gradients included, and use a weight that changed in place."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from trl_integration import onednn
from trl_integration.vllm_plugin import unpacked

PLAIN = functional.linear
SHAPES = ((64,), (3, 64), (2, 5, 64), (1, 1, 64))


@pytest.fixture(autouse=True)
def torchs_own() -> object:
    yield
    functional.linear = PLAIN


def drawn(shape: tuple[int, ...], bias: bool, dtype: torch.dtype = torch.float32) -> list[torch.Tensor | None]:
    torch.manual_seed(0)
    given = [torch.randn(size, dtype=dtype, requires_grad=True) for size in (shape, (32, 64), (32,))]
    return [*given[:2], given[2] if bias else None]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_torchs(shape: tuple[int, ...], bias: bool) -> None:
    given = drawn(shape, bias)
    wanted, found = PLAIN(*given), onednn.linear(*given)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)
    leaves = [one for one in given if one is not None]
    grad = torch.randn_like(wanted)
    for mine, its in zip(
        torch.autograd.grad(found, leaves, grad), torch.autograd.grad(wanted, leaves, grad), strict=True
    ):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-4)


def test_a_gradient_that_is_not_contiguous() -> None:
    given = drawn((2, 5, 64), bias=True)
    grad = torch.randn(2, 32, 5).transpose(1, 2)
    for mine, its in zip(
        torch.autograd.grad(onednn.linear(*given), given, grad),
        torch.autograd.grad(PLAIN(*given), given, grad),
        strict=True,
    ):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-4)


@pytest.mark.skipif(not onednn.AVAILABLE, reason="this torch has no oneDNN")
def test_float32_goes_through_onednn_once_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    product = onednn.product
    monkeypatch.setattr(onednn, "product", lambda *given: seen.append(len(given)) or product(*given))
    layer = torch.nn.Linear(64, 32)
    layer(torch.randn(3, 64))
    assert not seen
    onednn.use_in_torch()
    layer(torch.randn(3, 64)).sum().backward()
    assert layer.weight.grad is not None
    assert len(seen) == 2  # forward, and the weight's gradient: the input needs none


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_go_torchs_own_way(dtype: torch.dtype) -> None:
    given = drawn((3, 64), bias=True, dtype=dtype)
    torch.testing.assert_close(onednn.linear(*given), PLAIN(*given), rtol=0, atol=0)


def test_autocast_and_no_rows_go_torchs_own_way() -> None:
    x, weight, bias = drawn((3, 64), bias=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert onednn.linear(x, weight, bias).dtype == torch.bfloat16
    assert onednn.linear(x[:0], weight, bias).shape == (0, 32)


def test_a_second_derivative_is_refused_and_not_wrong() -> None:
    given = drawn((3, 64), bias=True)
    (first,) = torch.autograd.grad(onednn.linear(*given).pow(2).sum(), given[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize(
    "sizes",
    [((3, 63), (32, 64), (32,)), ((3, 64), (32, 64), (31,)), ((3, 64), (32, 64), (1,)), ((3, 64), (32, 64), ())],
)
def test_sizes_that_do_not_fit_are_told_as_torch_tells_them(sizes: tuple[tuple[int, ...], ...]) -> None:
    given = [torch.randn(size) for size in sizes]
    outcomes = []
    for function in (PLAIN, onednn.linear):
        try:
            outcomes.append(function(*given).tolist())
        except RuntimeError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@pytest.mark.filterwarnings("ignore")  # torch would rather have one not trace, nor nest tensors this way
def test_transforms_traces_and_nested_tensors_are_torchs() -> None:
    x, weight, bias = (one.detach() for one in drawn((3, 64), bias=True) if one is not None)
    each = torch.func.vmap(lambda row: onednn.linear(row, weight, bias))(x)
    torch.testing.assert_close(each, PLAIN(x, weight, bias), rtol=0, atol=1e-4)
    gradient = torch.func.grad(lambda row: onednn.linear(row, weight, bias).sum())(x)
    torch.testing.assert_close(gradient, weight.sum(0).expand(3, 64), rtol=0, atol=1e-4)
    traced = torch.jit.trace(lambda row: onednn.linear(row, weight, bias), x)
    torch.testing.assert_close(traced(x), PLAIN(x, weight, bias), rtol=0, atol=1e-4)
    nested = onednn.linear(torch.nested.nested_tensor([x, x[:2]]), weight, bias)
    assert [len(part) for part in nested.unbind()] == [3, 2]


def test_an_engines_layer_uses_the_weight_that_was_copied_over_its_own() -> None:
    layer = SimpleNamespace(weight=torch.randn(32, 64))
    unpacked(refuse)(layer, remove_weight=True)
    x = torch.randn(3, 64)
    for _ in range(2):
        layer.weight.copy_(torch.randn(32, 64))
        with torch.inference_mode():
            torch.testing.assert_close(
                layer.cpu_linear(x, layer.weight, None), PLAIN(x, layer.weight), rtol=0, atol=1e-4
            )


@pytest.mark.parametrize("weight", [torch.empty(8, 64, 4), torch.empty(8, 64, device="meta")])
def test_a_layer_without_a_matrix_is_left_to_the_engine(weight: torch.Tensor) -> None:
    chosen: list[tuple[object, bool]] = []
    layer = SimpleNamespace(weight=weight)
    unpacked(lambda *given: chosen.append(given))(layer, True)
    assert chosen == [(layer, True)]
    assert not hasattr(layer, "cpu_linear")


def refuse(*_: object) -> None:
    raise AssertionError("this layer is not vLLM's to pack")
