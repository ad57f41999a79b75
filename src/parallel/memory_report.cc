// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/memory_report.h"

#include <cstdio>

namespace ait::inline v0 {
namespace {

void AddLine(std::string& text, const char* what, std::int64_t measured, std::int64_t formula) {
  constexpr double kMiB = 1 << 20;
  char line[96];
  std::snprintf(line, sizeof(line), "  %-12s %10.1f %10.1f\n", what,
                static_cast<double>(measured) / kMiB, static_cast<double>(formula) / kMiB);
  text += line;
}

}  // namespace

std::string MemoryReport::Describe() const {
  std::string text = "  MiB            measured    formula\n";
  AddLine(text, "parameters", measured.parameters, formula.parameters);
  AddLine(text, "gradients", measured.gradients, formula.gradients);
  AddLine(text, "masters", measured.masters, formula.masters);
  AddLine(text, "states", measured.states, formula.states);
  AddLine(text, "buckets", measured.buckets, formula.buckets);
  AddLine(text, "gathered", measured.gathered, formula.gathered);
  AddLine(text, "total", measured.total(), formula.total());
  AddLine(text, "padding", padding, 0);
  AddLine(text, "peak buckets", peak_buckets, 0);
  AddLine(text, "peak gathered", peak_gathered, 0);
  AddLine(text, "in a file", offloaded, 0);
  return text;
}

}  // namespace ait::inline v0
