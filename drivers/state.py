"""The host's side of a machine as plain data, and back.

Drivers are rebuilt from what they were made of and then told their state; no object comes out of a
file but those that are named here. Operations are shared by cards, handles and queues, so they are
numbered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hdl.topology import Bound

from .backend import Completions
from .collectives import Program
from .device import Operation
from .dtypes import element_type
from .handle import Handle, Result
from .lease import Lease
from .memory import Array
from .plain import from_plain, to_plain
from .routes import RouteTable

if TYPE_CHECKING:
    from .supernode import Pass, SuperNode

__all__ = ["kept_value", "machine_state", "take_machine_state"]


def machine_state(machine: SuperNode) -> dict[str, Any]:
    """What :func:`take_machine_state` needs.

    Raises
    ------
    ValueError
        If something is kept that is no plain data, array or handle, or ranks have called a
        collective that others have not.
    """
    if machine.world.rounds.open:
        raise ValueError("some ranks have called a collective that others have not: a machine is "
                         "saved before the first of them has, or after the last")
    numbers: dict[int, int] = {}
    operations: list[Operation] = []

    def number(operation: Operation) -> int:
        if id(operation) not in numbers:
            numbers[id(operation)] = len(operations)
            operations.append(operation)
        return numbers[id(operation)]

    handles = list(machine.active)
    kept = {name: _keep(value, name, handles) for name, value in machine.kept.items()}
    passing = machine.passing
    return {
        "devices": [device.to_state(number) for device in machine.devices],
        "handles": [_handle_state(handle, number) for handle in handles],
        "active": len(machine.active),
        "routes": to_plain(machine.routes),
        "passing": passing and {
            "operation": number(passing.operation), "deadline": passing.deadline,
            "until": passing.until, "awaited": to_plain(passing.awaited)},
        "kept": kept,
        "operations": [to_plain(operation) for operation in operations]}


def take_machine_state(machine: SuperNode, state: Mapping[str, Any]) -> None:
    """Be as the machine was whose :func:`machine_state` this is; its drivers were not started."""
    operations = [from_plain(Operation, each) for each in state["operations"]]
    for device, saved in zip(machine.devices, state["devices"], strict=True):
        device.take_state(saved, operations)
    handles = [_handle(machine, saved, operations) for saved in state["handles"]]
    machine.active = handles[:state["active"]]
    machine.routes = from_plain(dict[int, RouteTable], state["routes"])
    machine.kept = {name: _kept(machine, value, handles) for name, value in state["kept"].items()}
    if state["passing"]:
        machine.passing = _pass(state["passing"], operations)


def _pass(saved: Mapping[str, Any], operations: Sequence[Operation]) -> Pass:
    from .supernode import Pass

    return Pass(operations[saved["operation"]], saved["deadline"], saved["until"],
                from_plain(tuple[Completions, ...], saved["awaited"]))


def _handle_state(handle: Handle, number: Any) -> dict[str, Any]:
    return {"operation": number(handle.operation), "bound": to_plain(handle.bound),
            "held": to_plain(handle.lease.held), "order": to_plain(handle.order),
            # A program is short; a schedule has as many lists as members, and is not kept.
            "program": to_plain(handle.schedule if isinstance(handle.schedule, Program) else None),
            "algorithm": handle.algorithm,
            "reason": handle.reason, "result": to_plain(handle.result)}


def _handle(machine: SuperNode, saved: Mapping[str, Any],
            operations: Sequence[Operation]) -> Handle:
    held = from_plain(list[tuple[int, str, int]], saved["held"])
    return Handle(operations[saved["operation"]], from_plain(Bound, saved["bound"]), machine,
                  Lease(machine.devices, held),
                  schedule=from_plain(Program | None, saved["program"]),
                  order=tuple(saved["order"]), algorithm=saved["algorithm"],
                  reason=saved["reason"],
                  result=from_plain(Result | None, saved["result"]))


def _keep(value: Any, name: str, handles: list[Handle]) -> Any:
    if isinstance(value, Array):
        return {"array": [value.card, value.offset, list(value.shape), value.dtype.name]}
    if isinstance(value, Handle):
        if not any(each is value for each in handles):
            handles.append(value)
        return {"handle": next(index for index, each in enumerate(handles) if each is value)}
    if isinstance(value, (list, tuple)):
        return {"list": [_keep(each, name, handles) for each in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _keep(each, name, handles) for key, each in value.items()}}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise ValueError(f"kept[{name!r}] holds a {type(value).__name__}: accepted are arrays, "
                     "handles, numbers, text, and lists and dictionaries of them")


def kept_value(state: Mapping[str, Any], name: str) -> Any:
    """What a machine keeps under ``name``, of plain data, by its state alone; ``None`` if there is
    none."""
    saved = state.get("kept", {}).get(name)
    return None if saved is None else _kept(None, saved, ())


def _kept(machine: SuperNode | None, saved: Mapping[str, Any], handles: Sequence[Handle]) -> Any:
    (kind, value), = saved.items()
    if kind == "array" and machine is not None:
        card, offset, shape, dtype = value
        return Array(card, offset, tuple(shape), element_type(dtype),
                     machine.topology.node_id(card), machine.backend)
    if kind == "handle":
        return handles[value]
    if kind == "list":
        return [_kept(machine, each, handles) for each in value]
    if kind == "dict":
        return {key: _kept(machine, each, handles) for key, each in value.items()}
    return value
