// What a process that runs a part of the nodes does with those that run the others.
#pragma once

#include <cstdint>

namespace supernode {

// What a process says at a boundary of the host. The smallest of each number is what holds.
struct Vote {
    uint64_t met;     // 0: a condition on one of its nodes does not hold
    uint64_t next;    // first event of its nodes
    uint64_t still;   // 0: something has moved since the last boundary
    uint64_t broken;  // cycle and node of the first broken rule, or NEVER
    uint64_t go;      // 0: wall time is up
};

// Called in the thread that calls run; anything but 0 ends the run.
struct Peers {
    int (*agree)(Vote* vote);  // makes it the smallest of all processes' votes
    int (*send)();             // border nodes have run through the window: their words can leave
    int (*receive)();          // hands over what the others have sent in this window
};

}  // namespace supernode
