// The machine's state in parts, for a file that is written and read part by part: part 0 is the
// fabric's own (and, of a flat design, its one model), the others are one group each, with its
// tiles, the host's side of its nodes, and the links that lead to them. Memories are not in it.
//
// To be saved at a boundary of the host, between two runs, when no window is under way; and to be
// restored into a fabric of the same nodes, links and faults, in place of a start.
#pragma once

#include <cstdint>
#include <vector>

#include "archive.hpp"
#include "pins.hpp"

namespace supernode {

class Fabric;

// A model's state, behind the name of its layout.
void archive(Saver& a, Model& model);
void archive(Loader& a, Model& model);

unsigned parts(const Fabric& fabric);
std::vector<uint8_t> save(Fabric& fabric, unsigned part);
void restore(Fabric& fabric, unsigned part, const uint8_t* from, size_t bytes);

}  // namespace supernode
