"""Collectives as schedules: a task says what is to be done, an algorithm writes typed steps, a
checker proves them, a compiler turns them into command lists. Schedules in which all members do
alike are programs: short, and proved once for all."""

from .algorithms import Algorithm, algorithm_names, algorithms, proved_schedule
from .bounds import collective_bound
from .build import Arrival, Builder
from .checker import LARGEST, ScheduleError, check
from .choose import Choice, fastest
from .compiler import CompiledSchedule, Placement, compile_schedule
from .dimensions import dimension_allreduce
from .direct import bruck, direct, pairwise
from .halving import doubling, halving
from .lists import CompiledProgram, compile_program
from .program import Kind, Move, Program, Slice
from .reference import reference
from .ring import bidirectional, ring
from .schedule import Done, Schedule, Send, Signal, Step, Wait
from .setting import AlgorithmError, Setting
from .shapes import NoShapeError, Shape, dimension_shape
from .symmetry import check_program
from .task import COLLECTIVES, Buffer, Collective, Goal, Region, Task, alltoall_counts
from .tree import tree

__all__ = ["COLLECTIVES", "LARGEST", "Algorithm", "AlgorithmError", "Arrival", "Buffer", "Builder",
           "Choice", "Collective", "CompiledProgram", "CompiledSchedule", "Done", "Goal", "Kind",
           "Move", "NoShapeError", "Placement", "Program", "Region", "Schedule", "ScheduleError",
           "Send", "Setting", "Shape", "Signal", "Slice", "Step", "Task", "Wait", "algorithm_names",
           "algorithms", "alltoall_counts", "bidirectional", "bruck", "check", "check_program",
           "collective_bound", "compile_program", "compile_schedule", "dimension_allreduce",
           "dimension_shape", "direct", "doubling", "fastest", "halving", "pairwise",
           "proved_schedule", "reference", "ring", "tree"]
