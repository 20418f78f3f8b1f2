"""FP8 with one power-of-two scale per tensor: exact to apply and to remove on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hdl.compute.fp8 import E4M3

from .training import Layer, activations

__all__ = ["QuantisedLayer", "encode", "outputs", "quantise", "scale_exponent"]

#: The largest E4M3 number.
LARGEST = 448.0


@dataclass(frozen=True)
class QuantisedLayer:
    """A layer in E4M3: ``weights`` are codes (inputs × outputs) of weights × 2^weight_exponent;
    its inputs are codes of values × 2^input_exponent; ``bias`` stays float32."""

    weights: np.ndarray
    bias: np.ndarray
    weight_exponent: int
    input_exponent: int


def scale_exponent(values: np.ndarray) -> int:
    """The largest ``e`` for which no |value| × 2^e is above 448, the largest E4M3 number."""
    largest = float(np.abs(values).max(initial=0))
    if largest == 0:
        return 0
    # 448 = 0.875 × 2^9
    fraction, exponent = np.frexp(largest)
    return int(9 - exponent if fraction <= 0.875 else 8 - exponent)


def encode(values: np.ndarray, exponent: int) -> np.ndarray:
    """E4M3 codes (uint8) of ``values`` × 2^``exponent``, rounded to nearest even, saturated."""
    return E4M3.encode(np.ldexp(values, exponent).astype(np.float32), saturate=True)


def outputs(layer: QuantisedLayer, sums: np.ndarray) -> np.ndarray:
    """A layer's outputs (float32) from the sums of products of its codes, before any ReLU."""
    return np.ldexp(sums, -layer.input_exponent - layer.weight_exponent) + layer.bias


def quantise(layers: Sequence[Layer], images: np.ndarray) -> list[QuantisedLayer]:
    """Quantise trained layers; the range of their inputs is what ``images`` make of it."""
    result = []
    for layer, inputs in zip(layers, activations(layers, images)[:-1], strict=True):
        exponent = scale_exponent(layer.weights)
        result.append(QuantisedLayer(
            weights=encode(layer.weights, exponent), bias=layer.bias, weight_exponent=exponent,
            input_exponent=scale_exponent(inputs)))
    return result
