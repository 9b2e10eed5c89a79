"""Weights of few bits learn what weights of many bits learn, and a loaded state goes on exactly."""

import copy

import pytest
import torch

from student.training.optimizer.compensated_adamw import CompensatedAdamW

SETTINGS = {"lr": 2e-5, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


def weights(dtype: torch.dtype) -> torch.nn.Parameter:
    values = torch.randn(5000, generator=torch.Generator().manual_seed(0)) * 0.03
    return torch.nn.Parameter(values.bfloat16().to(dtype))


def train(weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer, steps: int, begin: int = 0) -> None:
    for step in range(begin, begin + steps):
        noise = torch.randn(5000, generator=torch.Generator().manual_seed(step))
        weight.grad = (1 + noise).bfloat16().to(weight.dtype)
        optimizer.step()


def test_small_updates_of_bfloat16_weights_add_up_as_those_of_float32_weights_do():
    exact, ours, plain = weights(torch.float32), weights(torch.bfloat16), weights(torch.bfloat16)
    start = exact.detach().clone()
    train(exact, torch.optim.AdamW([exact], **SETTINGS), 200)
    train(ours, CompensatedAdamW([ours], **SETTINGS), 200)
    train(plain, torch.optim.AdamW([plain], **SETTINGS), 200)

    def moved(weight: torch.Tensor) -> float:
        return (weight.float() - start).mean().item()

    assert moved(ours) == pytest.approx(moved(exact), rel=0.01)
    # What plain AdamW makes of it, so that this test would notice if it were used.
    assert abs(moved(plain)) < 0.5 * abs(moved(exact))
    error = (ours.float() - exact).abs().max().item()
    assert error <= exact.abs().max().item() * 2**-8


def test_weights_of_float32_are_updated_as_by_torch():
    exact, ours = weights(torch.float32), weights(torch.float32)
    train(exact, torch.optim.AdamW([exact], **SETTINGS), 50)
    train(ours, CompensatedAdamW([ours], **SETTINGS), 50)
    torch.testing.assert_close(ours, exact, rtol=0, atol=1e-8)


def test_a_saved_state_goes_on_to_the_bit():
    whole, first = weights(torch.bfloat16), weights(torch.bfloat16)
    unbroken = CompensatedAdamW([whole], **SETTINGS)
    train(whole, unbroken, 20)
    before = CompensatedAdamW([first], **SETTINGS)
    train(first, before, 7)
    resumed = torch.nn.Parameter(first.detach().clone())
    after = CompensatedAdamW([resumed], **SETTINGS)
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    train(resumed, after, 13, begin=7)
    assert torch.equal(resumed, whole)
    for name, value in unbroken.state[whole].items():
        assert torch.equal(after.state[resumed][name], value) and after.state[resumed][name].dtype == value.dtype
