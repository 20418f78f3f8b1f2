"""What software says of dead links: their names, and whom an error names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drivers.commands import CompletionRecord
from drivers.device import Operation
from drivers.faults import cable_name, dead_links, describe_error
from drivers.handle import OperationError
from drivers.supernode import SuperNode
from hdl.layouts import LinkFault, LinkStatus, Op, Status, pack
from hdl.params import preset
from hdl.topology import parse
from tests.drivers.model import ModelBackend

RECORD = CompletionRecord(card=1, queue=0, op=Op.WRITE, status=Status.LINK_DOWN, tag=4, peer=2,
                          link=0, posted=10, started=20, ended=30)


class Dead(ModelBackend):
    """A machine some of whose ports report a dead link."""

    ports: tuple[tuple[int, int], ...] = ()

    def read_registers(self, requests):
        down = int.from_bytes(pack(LinkStatus, {"down": 1, "fault": LinkFault.SIGNAL}), "little")
        table = self.map.link
        return [down if (node, (offset - table.offset) // table.stride) in self.ports else 0
                for node, offset in requests]


def test_a_cable_has_one_name_whichever_of_its_ends_is_asked():
    backend = Dead(parse("ring:4"), preset("small"))
    assert dead_links(backend) == []
    for ports in (((1, 0), (2, 1)), ((1, 0),), ((2, 1),)):
        backend.ports = ports
        assert dead_links(backend) == ["1:+x (SIGNAL)"]
    backend.ports = ((3, 0), (0, 1), (1, 1))
    assert dead_links(backend) == ["0:-x (SIGNAL)", "0:+x (SIGNAL)"]
    assert cable_name(backend.topology, 2, 1) == "1:+x"


def test_an_error_names_card_command_status_and_the_dead_link():
    topology = parse("ring:4")
    assert describe_error(topology, RECORD) == (
        "card 1: WRITE with tag 4 ended at cycle 30 with LINK_DOWN of link 2:+x")
    late = replace(RECORD, queue=15, op=0)
    assert describe_error(topology, late).startswith("card 1: a command with tag 4")
    poison = replace(RECORD, status=Status.POISON)
    assert describe_error(topology, poison).endswith("with POISON from card 2")
    assert describe_error(topology, replace(RECORD, status=Status.TIMEOUT)).endswith("TIMEOUT")
    stranger = replace(RECORD, peer=0x1234)
    assert describe_error(topology, stranger).endswith("of link port 0 of node 0x1234")


def test_one_error_lists_every_card_and_the_link_once():
    topology = parse("ring:4")
    operation = Operation("sum", pending={0: 1, 1: 1, 2: 1, 3: 0}, records=[
        replace(RECORD, status=Status.TIMEOUT), RECORD, replace(RECORD, card=0, peer=1),
        replace(RECORD, card=3, status=Status.OK)])
    error = OperationError(topology, operation, ["2:+x (SIGNAL)"])
    assert error.links == ("2:+x (SIGNAL)", "1:+x") and error.silent == (2,)
    assert str(error) == (
        "sum: dead link 2:+x (SIGNAL), 1:+x; card 1: WRITE with tag 4 ended at cycle 30 with "
        "LINK_DOWN of link 2:+x (1 more); card 0: WRITE with tag 4 ended at cycle 30 with "
        "LINK_DOWN of link 1:+x; cards 2 have not ended")


def test_the_deadline_is_every_cards_and_is_checked():
    backend = ModelBackend(parse("ring:2"), preset("small"))
    SuperNode(backend, deadline=5000)
    assert [card.registers[backend.map.deadline.at()] for card in backend.cards] == [5000, 5000]
    with pytest.raises(ValueError, match="deadline must be from 0 to"):
        SuperNode(backend, deadline=-1)
