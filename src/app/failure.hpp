// How a run ends when something throws. No catch stands between a command and main: an uncaught exception reaches
// std::terminate with the stack still whole, so no destructor waits in MPI (a shared window is freed collectively) for
// ranks that know of no failure. There all ranks get a moment to say that they failed too. They did: one message, MPI
// ends in order. They did not: this rank speaks and takes the others with it.
#pragma once
#include <memory>

#include "millrace/comm/world.hpp"

namespace millrace::app {

// From here on exceptions end all ranks, with the code of their Error. Collective; takes the world's ownership until
// release_world().
World& end_all_ranks_on_failure(std::unique_ptr<World>);
void release_world();  // the orderly end: collective

}  // namespace millrace::app
