// Declarations of what `transitions.cpp` adds to the extension module.
#pragma once

#include <nanobind/nanobind.h>

namespace stansub {

void bind_transitions(nanobind::module_& m);

}  // namespace stansub
