"""Generated Verilog is clean and portable, and the manifest says what its ports are."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from amaranth.hdl import Fragment, Module, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from emu.build import Builder
from emu.toolchain import find_toolchain
from hdl import verilog
from hdl.card import Card
from hdl.layouts import field_slices, link_word
from hdl.params import SwitchParams, TrafficParams, preset
from hdl.ports import NetworkSignature
from hdl.switch import SwitchTile
from hdl.traffic import TrafficTile
from hdl.verilog import generate
from tests.emu.toys import ToyComputeTile, ToyNetworkTile

PARAMS = preset("small")
#: What is made, and of what; the card holds both of its tiles.
TILES = {
    "network": (ToyNetworkTile, PARAMS), "compute": (ToyComputeTile, PARAMS),
    "card": (Card, PARAMS), "traffic": (TrafficTile, TrafficParams(router=PARAMS.router)),
    "switch": (SwitchTile, SwitchParams(link=PARAMS.link, radix=4, table_bits=3)),
}
WAIVERS = Path(verilog.__file__).parent / "waivers.vlt"


def lint(folder, text, name):
    source = folder / f"{name}.v"
    source.write_text(text)
    toolchain = find_toolchain()
    return subprocess.run(
        [toolchain.program, "--lint-only", "-Wall", "--top-module", name, WAIVERS, source],
        env=toolchain.environment(), capture_output=True, text=True)


@pytest.fixture(scope="module", params=TILES)
def generated(request):
    return Builder().verilog(*TILES[request.param], request.param)


def test_lint_is_clean_with_the_waivers(generated, tmp_path):
    run = lint(tmp_path, generated.text, generated.name)
    assert run.returncode == 0, run.stderr
    assert "Warning" not in run.stderr


def test_lint_still_finds_what_is_not_waived(tmp_path):
    text = ("module top(input clk, output reg q, output p);\n"
            "always @* if (clk) q = p;\nendmodule\n")
    run = lint(tmp_path, text, "top")
    assert run.returncode != 0 and "LATCH" in run.stderr


def test_every_waiver_has_its_reason():
    lines = WAIVERS.read_text().splitlines()
    rules = [at for at, line in enumerate(lines) if line.startswith("lint_off")]
    assert rules and all(lines[at - 1].startswith("//") for at in rules)


def test_no_block_is_called_like_a_port_of_its_parent(generated):
    # One of the two would get a number, which changes with what stands before it.
    assert not re.findall(r"^module (\S+\$\d+)", generated.text, re.M)


def test_no_path_of_the_build_machine_is_inside(generated):
    for text in (generated.text, generated.manifest_text()):
        assert str(Path(verilog.__file__).parent.parent) not in text
        assert not re.search(r"\.py\b|/home/|/root/|/tmp/", text)


def test_the_manifest_lists_exactly_the_ports_of_the_verilog(generated):
    header = re.search(rf"module {generated.name} ?\((.*?)\);", generated.text, re.DOTALL)
    names = {name.strip() for name in header[1].split(",")}
    manifest = json.loads(generated.manifest_text())
    assert names == {port["name"] for port in manifest["ports"]}
    for port in manifest["ports"]:
        width = "" if port["width"] == 1 else rf"\[{port['width'] - 1}:0\] "
        assert re.search(rf"^  {port['direction']}put {width}{port['name']};$", generated.text,
                         re.MULTILINE)


def test_the_manifest_groups_ports_by_what_they_are():
    manifest = generate(ToyNetworkTile(PARAMS), "network").manifest
    kinds = [entry["kind"] for entry in manifest["interfaces"]]
    assert kinds == ["link", "link", "host", "read", "read", "write", "stream", "stream",
                     "activity"]
    by_path = {entry["path"]: entry for entry in manifest["interfaces"]}
    assert by_path["links[1]"]["ports"] == {
        "rx": "links__1__rx", "tx": "links__1__tx", "up": "links__1__up"}
    assert by_path["memory[0].write"]["ports"]["request.payload"] == (
        "memory__0__write__request__payload")
    assert (by_path["gemm"]["direction"], by_path["done"]["direction"]) == ("out", "in")
    assert manifest["parameters"]["router"]["link"]["flit_bytes"] == 32


def test_roles_and_fields_are_those_of_the_signature():
    manifest = generate(ToyNetworkTile(PARAMS), "network").manifest
    ports = {port["role"]: port for port in manifest["ports"]}
    signature = NetworkSignature(PARAMS)
    roles = {"clk", "rst"} | {
        ".".join(map(str, path)).replace(".0", "[0]").replace(".1", "[1]")
        for path, _, _ in signature.flatten(signature.create(path=("tile",)))}
    assert set(ports) == roles
    expected = {name: list(where) for name, where in field_slices(link_word(PARAMS.link)).items()}
    assert ports["links[0].rx"]["fields"] == ports["links[0].tx"]["fields"] == expected
    assert "fields" not in ports["now"]


def test_a_port_without_bits_is_refused_by_name():
    class Empty(wiring.Component):
        a: In(1)
        nothing: Out(unsigned(0))

        def elaborate(self, platform):
            return Module()

    empty = Empty()
    with pytest.raises(ValueError, match="port 'nothing' of empty has no bits"):
        generate(empty, "empty")
    Fragment.get(empty, None)  # Amaranth warns of what is never elaborated
