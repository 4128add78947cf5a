"""`spool graph`: builds decoding graphs, converts other tools' graphs and describes a graph.

`spool.graphs` does the work, and needs the extra `graph` to build.
"""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from api.cli.connection import err
from spool.commandline.app import new_app
from spool.settings import load_settings

if TYPE_CHECKING:
    from spool.graphs.arrays import GraphArrays

app = new_app("Build decoding graphs from a lexicon and an n-gram model.", "graph")


class TopologyName(StrEnum):
    """How a unit may be repeated."""

    compact = "compact"
    corrected = "corrected"


Units = Annotated[
    Path,
    Parameter(help="The model's units.txt, its folder, or a list of units, one a line, blank first."),
]
Output = Annotated[
    Path | None,
    Parameter(
        help="File to write (.npz), or a folder, where the file is named by its hash. Default: the folder "
        "graphs in SPOOL_HOME."
    ),
]


@app.command
def build(
    *,
    lexicon: Annotated[Path, Parameter(help="Words and their units: `word unit unit …` a line.")],
    arpa: Annotated[Path, Parameter(help="ARPA file of an n-gram language model over the words.")],
    units: Units,
    topology: Annotated[
        TopologyName,
        Parameter(
            help="compact: as in WeNet's graphs, a unit may follow itself without blank. corrected: as CTC "
            "defines it, with an arc for every pair of units (up to 500 units)."
        ),
    ] = TopologyName.compact,
    output: Output = None,
) -> None:
    """Build a decoding graph for the CTC head of a model, and print its path."""
    from spool.graphs.build import build_graph, read_lexicon, read_units

    known = read_units(units)
    _keep(build_graph(known, read_lexicon(lexicon, known), arpa, topology.value), output)


@app.command
def convert(
    fst: Annotated[Path, Parameter(name="TLG.FST", help="Graph in OpenFst's format, made by WeNet's tools.")],
    /,
    *,
    words: Annotated[Path, Parameter(help="The graph's words.txt.")],
    units: Units,
    output: Output = None,
) -> None:
    """Convert a published TLG.fst, and print the graph's path. Word times are then estimates."""
    from spool.graphs.build import convert_graph, read_units

    _keep(convert_graph(fst, read_units(units), words), output)


@app.command
def show(
    graph: Annotated[Path, Parameter(name="GRAPH", help="A graph made by `spool graph build`.")],
    /,
) -> None:
    """Print what is in a graph, as JSON."""
    from spool.graphs.arrays import read_graph

    print(json.dumps(_facts(read_graph(graph)), indent=2))


def _facts(graph: "GraphArrays") -> dict[str, Any]:
    return {
        "states": graph.states,
        "arcs": graph.arcs,
        "units": len(graph.units),
        "words": max(len(graph.words) - 1, 0),
        "epsilon_depth": graph.epsilon_depth,
        **graph.facts,
    }


def _keep(graph: "GraphArrays", output: Path | None) -> None:
    from spool.graphs.arrays import save_graph

    path, digest = save_graph(graph, output or load_settings().home / "graphs")
    err.print(f"{graph.states} states, {graph.arcs} arcs, SHA-256 {digest}", style="dim")
    print(str(path))
