"""Collectives as schedules: an algorithm makes typed steps, a checker proves them, a compiler turns
them into command lists."""

from .checker import ScheduleError, check
from .compiler import CompiledSchedule, Placement, compile_schedule
from .reference import reference
from .ring import ring_allreduce
from .schedule import Done, Region, Schedule, Send, Signal, Step, Wait

__all__ = ["CompiledSchedule", "Done", "Placement", "Region", "Schedule", "ScheduleError", "Send",
           "Signal", "Step", "Wait", "check", "compile_schedule", "reference", "ring_allreduce"]
