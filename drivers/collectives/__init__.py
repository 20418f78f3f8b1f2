"""Collectives as schedules: an algorithm makes typed steps, a checker proves them, a compiler turns
them into command lists. Schedules in which all members do alike are programs: short, and proved
once for all."""

from .checker import ScheduleError, check
from .compiler import CompiledSchedule, Placement, compile_schedule
from .dimensions import dimension_allreduce
from .lists import CompiledProgram, compile_program
from .program import Kind, Move, Program, Slice
from .reference import reference
from .ring import ring_allreduce
from .schedule import Done, Region, Schedule, Send, Signal, Step, Wait
from .shapes import NoShapeError, dimension_shape
from .symmetry import check_program

__all__ = ["CompiledProgram", "CompiledSchedule", "Done", "Kind", "Move", "NoShapeError",
           "Placement", "Program", "Region", "Schedule", "ScheduleError", "Send", "Signal", "Slice",
           "Step", "Wait", "check", "check_program", "compile_program", "compile_schedule",
           "dimension_allreduce", "dimension_shape", "reference", "ring_allreduce"]
