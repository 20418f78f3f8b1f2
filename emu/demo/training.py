"""A multilayer perceptron in float32 numpy and its trainer: Adam on softmax cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

__all__ = ["Layer", "accuracy", "activations", "train"]

EPOCHS = 24
BATCH = 64
RATE = 2e-3
#: Weight decay keeps outliers small, which a per-tensor scale would have to make room for.
DECAY = 1e-4


@dataclass(frozen=True)
class Layer:
    """``x @ weights + bias``, float32; all layers but the last are followed by a ReLU."""

    weights: np.ndarray
    bias: np.ndarray


def activations(layers: Sequence[Layer], images: np.ndarray) -> list[np.ndarray]:
    """The input of every layer, then the logits."""
    inputs, outputs = [], images
    for index, layer in enumerate(layers):
        inputs.append(outputs if index == 0 else np.maximum(outputs, 0))
        outputs = inputs[-1] @ layer.weights + layer.bias
    return [*inputs, outputs]


def accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    """The share of rows whose largest logit is at the label."""
    return float(np.mean(logits.argmax(axis=1) == labels))


def train(images: np.ndarray, labels: np.ndarray, widths: Sequence[int], seed: int) -> list[Layer]:
    """Train layers of ``widths`` (inputs, hidden …, classes) on ``images``.

    The result depends on ``seed`` and on the order in which numpy's matrix product adds.
    """
    # Comes with the demo's extra, like the images.
    from threadpoolctl import threadpool_limits

    # The products are too small to share: threads would wait for each other, the more so on a busy
    # machine.
    with threadpool_limits(1):
        return _train(images, labels, widths, seed)


def _train(images: np.ndarray, labels: np.ndarray, widths: Sequence[int],
           seed: int) -> list[Layer]:
    rng = np.random.default_rng(seed)
    parameters: list[np.ndarray] = []
    for fan_in, fan_out in pairwise(widths):
        weights = rng.standard_normal((fan_in, fan_out)) * np.sqrt(2 / fan_in)
        parameters += [weights.astype(np.float32), np.zeros(fan_out, np.float32)]
    # The pixels reach 16: a first layer that is smaller by as much starts with unit activations.
    parameters[0] /= np.float32(images.max())
    means = [np.zeros_like(p) for p in parameters]
    squares = [np.zeros_like(p) for p in parameters]
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(images))
        for start in range(0, len(order), BATCH):
            batch = order[start:start + BATCH]
            step += 1
            gradients = _gradients(parameters, images[batch], labels[batch])
            rate = np.float32(RATE * np.sqrt(1 - 0.999 ** step) / (1 - 0.9 ** step))
            for p, g, mean, square in zip(parameters, gradients, means, squares, strict=True):
                mean += np.float32(0.1) * (g - mean)
                square += np.float32(0.001) * (g * g - square)
                p -= rate * mean / (np.sqrt(square) + np.float32(1e-8))
                if p.ndim == 2:
                    p *= np.float32(1 - DECAY)
    return [Layer(w, b) for w, b in zip(parameters[::2], parameters[1::2], strict=True)]


def _gradients(parameters: list[np.ndarray], images: np.ndarray,
               labels: np.ndarray) -> list[np.ndarray]:
    layers = [Layer(w, b) for w, b in zip(parameters[::2], parameters[1::2], strict=True)]
    *inputs, logits = activations(layers, images)
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    slope = exponentials / exponentials.sum(axis=1, keepdims=True)
    slope[np.arange(len(labels)), labels] -= 1
    slope /= np.float32(len(labels))
    gradients: list[np.ndarray] = []
    for layer, values in zip(reversed(layers), reversed(inputs), strict=True):
        gradients[:0] = [values.T @ slope, slope.sum(axis=0)]
        slope = (slope @ layer.weights.T) * (values > 0)
    return gradients
