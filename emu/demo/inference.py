"""The quantised MLP on a supernode, tensor-parallel, and the same arithmetic in numpy.

The first layer is column-parallel: every card holds all images and a share of the weights'
columns, and its results are a share of the first hidden layer. Every later layer is row-parallel:
a card holds a share of its inputs and the matching rows of its weights, and a ring AllReduce adds
the cards' partial sums. Removing scales, bias, ReLU and requantisation run on the host, between
the phases; so do loading and reading memory. None of that is in the cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from emu.shares import shares
from hdl.compute import model
from hdl.compute.fp8 import E4M3

from .quantise import QuantisedLayer, encode, outputs

if TYPE_CHECKING:
    from drivers.handle import Handle, Result
    from drivers.memory import Array
    from drivers.supernode import SuperNode

__all__ = ["Phase", "classify", "classify_reference"]

FP8 = np.dtype(ml_dtypes.float8_e4m3fn)


@dataclass(frozen=True)
class Phase:
    """One step on the machine, from its first doorbell to its last completion."""

    name: str
    result: Result


def classify(machine: SuperNode, layers: Sequence[QuantisedLayer],
             images: np.ndarray, started: Callable[[str, Handle], None] = lambda name, handle: None
             ) -> tuple[np.ndarray, list[Phase]]:
    """Run ``images`` (float32 rows) through ``layers`` on ``machine``: logits and phases.
    ``started`` hears the name of each phase that has been started."""
    phases = []
    values = images
    for number, layer in enumerate(layers, 1):
        codes = encode(values, layer.input_exponent)
        columns = number == 1
        inputs, weights = layer.weights.shape
        parts = shares(weights if columns else inputs, machine.cards)
        products = []
        for card, part in enumerate(parts):
            a = codes if columns else codes[:, part]
            b = layer.weights[:, part] if columns else layer.weights[part]
            c = machine.malloc((len(codes), b.shape[1]), "f32", card)
            products.append((_place(machine, a, card), _place(machine, b, card), c))
        phases.append(_wait(f"layer {number} gemm", machine.gemms(products), started))
        partial = [c for _, _, c in products]
        if columns:
            sums = np.concatenate([c.read() for c in partial], axis=1)
        else:
            phases.append(_wait(f"layer {number} allreduce",
                                machine.allreduce(partial, op="sum", algorithm="ring"), started))
            sums = partial[0].read()
        values = _activate(layer, sums, last=number == len(layers))
    return values, phases


def classify_reference(layers: Sequence[QuantisedLayer], images: np.ndarray, cards: int,
                       allreduce: Callable[[list[np.ndarray]], np.ndarray]) -> np.ndarray:
    """The logits that :func:`classify` must find on ``cards`` cards, bit for bit.

    ``allreduce`` adds one array per card in the order of the collective.
    """
    values = images
    for number, layer in enumerate(layers, 1):
        codes = encode(values, layer.input_exponent)
        if number == 1:
            sums = _multiply(codes, layer.weights)
        else:
            sums = allreduce([_multiply(codes[:, part], layer.weights[part])
                              for part in shares(len(layer.weights), cards)])
        values = _activate(layer, sums, last=number == len(layers))
    return values


def _wait(name: str, handle: Handle, started: Callable[[str, Handle], None]) -> Phase:
    started(name, handle)
    return Phase(name, handle.wait())


def _place(machine: SuperNode, codes: np.ndarray, card: int) -> Array:
    array = machine.malloc(codes.shape, "e4m3", card)
    array.write(np.ascontiguousarray(codes).view(FP8))
    return array


def _multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return model.gemm(a, b, E4M3, E4M3)


def _activate(layer: QuantisedLayer, sums: np.ndarray, *, last: bool) -> np.ndarray:
    values = outputs(layer, sums)
    return values if last else np.maximum(values, 0)
