// Declarations of the parts of the extension module in `transitions.cpp` and `levels.cpp`.
#pragma once

#include <nanobind/nanobind.h>

namespace stansub {

void bind_transitions(nanobind::module_& m);
void bind_levels(nanobind::module_& m);

}  // namespace stansub
