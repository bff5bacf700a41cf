// The description of the machine by `millrace inspect`: ranks, cores, devices, libraries and missing features.
#pragma once
#include <string>

#include "millrace/comm/world.hpp"

namespace millrace::app {

std::string describe_machine(World&);  // collective

}  // namespace millrace::app
