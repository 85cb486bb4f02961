// Python's view of programs of one observation.
#pragma once

#include <nanobind/nanobind.h>

namespace stansub {

void define_programs(nanobind::module_& m);

}  // namespace stansub
