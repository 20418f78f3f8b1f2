"""The demo's numerics, on a supernode in numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from emu.cli.demo import WIDTHS
from emu.demo.digits import TEST_IMAGES, load_digits
from emu.demo.inference import classify, classify_reference
from emu.demo.quantise import encode, quantise, scale_exponent
from emu.demo.training import Layer, accuracy, activations, train
from emu.oracle import ring_sum
from emu.shares import shares
from tests.emu.cli.fake import FakeSuperNode


def test_the_held_out_images_are_not_trained_on() -> None:
    data = load_digits(3)
    assert len(data.test_images) == TEST_IMAGES
    assert len(data.test_images) + len(data.train_images) == 1797
    order = np.lexsort(np.concatenate([data.test_images, data.train_images]).T)
    again = load_digits(4)
    other = np.lexsort(np.concatenate([again.test_images, again.train_images]).T)
    assert np.array_equal(np.concatenate([data.test_images, data.train_images])[order],
                          np.concatenate([again.test_images, again.train_images])[other])
    assert not np.array_equal(data.test_images, again.test_images)


@pytest.mark.parametrize("seed", range(4))
def test_fp8_is_at_least_94_percent_right_and_within_a_point_of_float32(seed: int) -> None:
    data = load_digits(seed)
    layers = train(data.train_images, data.train_labels, WIDTHS, seed)
    quantised = quantise(layers, data.train_images)
    machine = FakeSuperNode.open("torus:2x2x2", preset="default")
    logits, phases = classify(machine, quantised, data.test_images)
    expected = classify_reference(
        quantised, data.test_images, machine.cards,
        lambda partial: ring_sum(machine.topology, machine.params, partial))
    assert logits.dtype == np.float32
    assert np.array_equal(logits.view(np.uint32), expected.view(np.uint32))
    fp8 = accuracy(logits, data.test_labels)
    f32 = accuracy(activations(layers, data.test_images)[-1], data.test_labels)
    assert fp8 >= 0.94
    assert abs(fp8 - f32) <= 0.01
    assert [phase.name for phase in phases] == [
        "layer 1 gemm", "layer 2 gemm", "layer 2 allreduce", "layer 3 gemm", "layer 3 allreduce"]


def test_training_is_a_function_of_its_seed() -> None:
    data = load_digits(0)
    first, second, other = (train(data.train_images[:200], data.train_labels[:200], (64, 8, 10),
                                  seed) for seed in (5, 5, 6))
    assert all(np.array_equal(a.weights, b.weights) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[0].weights, other[0].weights)
    assert {layer.weights.dtype for layer in first} == {np.dtype(np.float32)}


def test_gradients_are_those_of_the_cross_entropy() -> None:
    from emu.demo.training import _gradients

    rng = np.random.default_rng(1)
    parameters = [rng.standard_normal(shape) for shape in ((5, 4), (4,), (4, 3), (3,))]
    images, labels = rng.standard_normal((6, 5)), rng.integers(0, 3, 6)

    def loss() -> float:
        layers = [Layer(*parameters[:2]), Layer(*parameters[2:])]
        logits = activations(layers, images)[-1]
        top = np.log(np.exp(logits).sum(axis=1))
        return float(np.mean(top - logits[np.arange(6), labels]))

    for parameter, gradient in zip(parameters, _gradients(parameters, images, labels), strict=True):
        for index in np.ndindex(parameter.shape):
            parameter[index] += 1e-6
            above = loss()
            parameter[index] -= 2e-6
            below = loss()
            parameter[index] += 1e-6
            assert gradient[index] == pytest.approx((above - below) / 2e-6, abs=1e-6)


@pytest.mark.parametrize("largest", [448, 448.0001, 447, 1, 0.7, 2**-9, 1e-6, 3e5])
def test_a_scale_uses_the_whole_range_and_never_saturates_what_it_was_made_from(
        largest: float) -> None:
    values = np.array([-largest, largest / 3, 0], np.float32)
    exponent = scale_exponent(values)
    scaled = float(np.abs(values).max()) * 2.0**exponent
    assert 224 < scaled <= 448


def test_an_all_zero_tensor_has_scale_one() -> None:
    assert scale_exponent(np.zeros((2, 3), np.float32)) == 0
    assert scale_exponent(np.zeros((0, 3), np.float32)) == 0


def test_codes_are_rounded_once_and_saturate() -> None:
    values = np.array([0.1, -0.3, 1.0, 30.0, 1e6, -1e6], np.float32)
    codes = encode(values, 4)
    expected = np.clip(values * 16, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    assert np.array_equal(codes, expected.view(np.uint8))


def test_pixels_are_exact_in_e4m3() -> None:
    pixels = np.arange(17, dtype=np.float32)
    exponent = scale_exponent(pixels)
    codes = encode(pixels, exponent).view(ml_dtypes.float8_e4m3fn)
    assert np.array_equal(codes.astype(np.float32), np.ldexp(pixels, exponent))


@pytest.mark.parametrize(("size", "cards"), [(256, 8), (10, 8), (3, 8), (0, 4), (7, 1)])
def test_shares_cover_a_dimension_once_and_evenly(size: int, cards: int) -> None:
    parts = shares(size, cards)
    assert len(parts) == cards
    assert [i for part in parts for i in range(size)[part]] == list(range(size))
    sizes = {part.stop - part.start for part in parts}
    assert max(sizes) - min(sizes) <= 1
