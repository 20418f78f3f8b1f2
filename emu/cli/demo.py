"""``supernode demo``: handwritten digits classified in FP8 by a tensor-parallel MLP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .errors import Failure
from .machine import Machine, Stopwatch, machine_options, rates
from .verdict import compare

if TYPE_CHECKING:
    from emu.demo.inference import Phase

__all__ = ["demo"]

WIDTHS = (64, 256, 128, 10)


@click.command()
@machine_options(default="torus:2x2x2")
def demo(**options: Any) -> None:
    """Classify handwritten digits in FP8 on emulated cards.

    An MLP is trained in float32 on this host and runs tensor-parallel over the cards. All products
    and AllReduces of the FP8 inference run on the cards; scales, bias, ReLU and requantisation run
    on the host.
    """
    from emu.demo.digits import MissingImagesError, load_digits
    from emu.demo.inference import classify, classify_reference
    from emu.demo.quantise import quantise
    from emu.demo.training import accuracy, activations, train
    from emu.oracle import ring_sum

    setup = Machine(**options)
    screen = setup.screen
    with Stopwatch() as watch:
        try:
            data = load_digits(setup.seed)
        except MissingImagesError as error:
            raise Failure(str(error)) from error
        layers = train(data.train_images, data.train_labels, WIDTHS, setup.seed)
        quantised = quantise(layers, data.train_images)
        with setup.open(0) as machine:
            with setup.timed(machine) as run:
                logits, phases = classify(
                    machine, quantised, data.test_images,
                    lambda name, handle: run.expect(handle.bound.cycles, name))
            card_cycles, stepped = rates(machine)
            expected = classify_reference(
                quantised, data.test_images, machine.cards,
                lambda partial: ring_sum(machine.topology, machine.params, partial))
            verdict = compare([logits], [expected])
            profile = setup.tell_profile(machine)
        fp8 = accuracy(logits, data.test_labels)
        f32 = accuracy(activations(layers, data.test_images)[-1], data.test_labels)

    verified = verdict.mismatches == 0
    screen.table(
        f"MLP {'-'.join(map(str, WIDTHS))} in FP8 on {setup.topology}: {machine.cards} cards, "
        f"{len(data.test_images)} images",
        ("phase", "cycles", "bound", "limited by", "efficiency", "waited"),
        [_row(phase) for phase in phases])
    total = sum(phase.result.cycles for phase in phases)
    screen.line(f"cycles          {total:,} ({total / setup.clock_ghz / 1000:,.1f} µs at "
                f"{setup.clock_ghz:g} GHz)")
    screen.line("on the host     scales, bias, ReLU and requantisation; not in the cycles")
    screen.line(f"accuracy        {fp8:.2%} in FP8, {f32:.2%} in float32, on held-out images")
    screen.line(f"verified        {verdict.values:,} logits, bit for bit" if verified else
                f"verified        NO: {verdict.mismatches:,} of {verdict.values:,} logits differ")
    screen.line(f"wall time       {watch.seconds:.1f} s, {card_cycles:,.0f} card-cycles per "
                f"second, {stepped:,.0f} of them evaluated")
    screen.result({"accuracy": fp8, "accuracy_f32": f32, "cycles": total,
                   "phases": [_values(phase) for phase in phases],
                   "verified": verified, "wall_s": watch.seconds, **profile,
                   **setup.observation.figures()})
    if not verified:
        raise Failure(f"{verdict.mismatches} of {verdict.values} logits differ from the reference, "
                      f"first {verdict.first}")


def _row(phase: Phase) -> tuple[str, ...]:
    result = phase.result
    return (phase.name, f"{result.cycles:,}", f"{result.bound_cycles:,}", result.limit,
            "-" if result.efficiency is None else f"{result.efficiency:.3f}",
            f"{result.waited_cycles:,}")


def _values(phase: Phase) -> dict[str, Any]:
    result = phase.result
    return {"name": phase.name, "cycles": result.cycles, "time_ns": result.time_ns,
            "bound_cycles": result.bound_cycles, "efficiency": result.efficiency,
            "waited_cycles": result.waited_cycles}
