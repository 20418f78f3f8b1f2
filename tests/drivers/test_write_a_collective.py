"""The page that shows how to write an algorithm says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from drivers.collectives import Collective, ScheduleError, Setting, Task, check, reference
from hdl.params import preset

PAGE = Path(__file__).parents[2] / "docs/write-a-collective.md"
SETTING = Setting(preset("default"), 4, (0, 1, 2, 3))
TASK = Task(Collective.ALLGATHER, 4, (8,) * 4)


def star_of(text: str):
    code = re.search(r"```python\n(from drivers.*?)```", text, re.DOTALL)[1]
    names: dict = {}
    exec(code, names)
    return names["star"]


def test_the_mistake_on_the_page_is_found_in_the_words_of_the_page():
    text = PAGE.read_text()
    with pytest.raises(ScheduleError) as found:
        check(star_of(text)(TASK, SETTING))
    shown = re.search(r"ScheduleError: (.*?)```", text, re.DOTALL)[1]
    assert " ".join(shown.split()) == str(found.value)


def test_the_algorithm_is_right_once_it_is_mended():
    star = star_of(PAGE.read_text().replace("after=came)", "after=[*came, own])"))
    for members in (1, 2, 5):
        for in_place in (False, True):
            task = Task(Collective.ALLGATHER, members, tuple(range(members)), in_place=in_place)
            schedule = star(task, Setting(preset("default"), 4, tuple(range(members))))
            check(schedule)
            inputs = [np.full(member, member + 1, np.float32) for member in range(members)]
            for output in reference(schedule, inputs, "f32"):
                assert output.tolist() == np.concatenate(inputs).tolist()
