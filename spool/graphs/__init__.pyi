from .arrays import read_graph as read_graph, save_graph as save_graph, write_graph as write_graph
from .build import (
    build_graph as build_graph,
    convert_graph as convert_graph,
    read_lexicon as read_lexicon,
    read_units as read_units,
)
