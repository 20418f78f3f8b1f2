"""Arrays of equal components that are made into Verilog once.

An array otherwise takes its time for each element: to elaborate, to print, to verilate and to
compile. Here the first element becomes a module of its own and all are instances of it, which
Verilator keeps apart (see ``compact``): one function that stays in the instruction cache.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from amaranth.back import verilog
from amaranth.hdl import ClockSignal, Elaboratable, Instance, Module, ResetSignal, Value
from amaranth.lib import wiring

from .compact import compact

__all__ = ["Once", "convert"]

#: Components that become modules of the conversion under way, by name of the module.
_modules: ContextVar[dict[str, wiring.Component] | None] = ContextVar("modules", default=None)


class Once(wiring.Component):
    """One of several equal components; made by :meth:`array`.

    They live in the domain ``sync``, and their ports have at least one bit each.
    """

    def __init__(self, name: str, first: wiring.Component,
                 own: Callable[[], wiring.Component]) -> None:
        self._name, self._first, self._own = name, first, own
        super().__init__(first.signature)

    @classmethod
    def array(cls, name: str, make: Callable[[], wiring.Component], count: int) -> list[Any]:
        """Return ``count`` of what ``make`` returns; their module's name begins with ``name``."""
        first = make()
        return [cls(name, first, make if index else lambda: first) for index in range(count)]

    def elaborate(self, platform: Any) -> Elaboratable:
        modules = _modules.get()
        if modules is None:
            m = Module()
            m.submodules.component = component = self._own()
            wiring.connect(m, wiring.flipped(self), component)
            return m
        name = next((known for known, first in modules.items() if first is self._first), None)
        if name is None:
            name = f"{self._name}_{len(modules)}"
            modules[name] = self._first
        ports = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
        for path, member, value in self.signature.flatten(self):
            side = "i" if member.flow is wiring.In else "o"
            ports[f"{side}_{'__'.join(map(str, path))}"] = Value.cast(value)
        return Instance(name, **ports)


def convert(component: wiring.Component, name: str,
            rewrite: Callable[[str], str] = compact) -> str:
    """Return the Verilog of ``component`` as a module called ``name``, rewritten, followed by the
    modules of what is in it once, which are always compacted."""
    modules: dict[str, wiring.Component] = {}
    token = _modules.set(modules)
    try:
        texts = [rewrite(_verilog(component, name))]
        while len(texts) <= len(modules):
            inner, part = list(modules.items())[len(texts) - 1]
            texts.append(compact(_verilog(part, inner), apart=True))
    finally:
        _modules.reset(token)
    return "\n".join(texts)


def _verilog(component: wiring.Component, name: str) -> str:
    return verilog.convert(component, name=name, emit_src=False, strip_internal_attrs=True)
