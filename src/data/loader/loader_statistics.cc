// SPDX-License-Identifier: Apache-2.0
#include "ait/data/loader/loader_statistics.h"

#include <chrono>
#include <cmath>

#include "ait/base/status.h"

namespace ait::inline v0 {
namespace {

std::int64_t Milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

}  // namespace

std::string ToString(const LoaderStatistics& s) {
  std::string text =
      StrCat("delivered: ", s.batches, " batches, ", s.samples, " samples, ", s.bytes,
             " bytes read; ", s.bad_samples, " bad, ", s.stand_ins, " stand-ins\n",
             "consumer waited ", Milliseconds(s.consumer_wait), " ms in ", s.waits,
             " calls; slow batches: ", s.slow_batches, "\n", "threads: read ", Milliseconds(s.read),
             " ms, transform ", Milliseconds(s.transform), " ms, collate ", Milliseconds(s.collate),
             " ms, idle ", Milliseconds(s.idle), " ms\n", "ahead: ", s.ready, " ready of at most ",
             s.depth, "; memory ", s.held_bytes, " bytes, at most ", s.peak_bytes,
             "; buffers made ", s.buffers_made, ", given up ", s.given_up, "\n");
  if (!s.longest_read_what.empty()) {
    text +=
        StrCat("longest read: ", Milliseconds(s.longest_read), " ms, ", s.longest_read_what, "\n");
  }
  if (s.cache.hits + s.cache.misses > 0) {
    text += StrCat("cache: ", s.cache.hits, " hits, ", s.cache.misses, " misses\n");
  }
  return text;
}

void AddTo(StepMetrics& metrics, const DataWait& wait) {
  metrics.counters.emplace_back(
      "data_wait_us", std::chrono::duration_cast<std::chrono::microseconds>(wait.wait).count());
  metrics.counters.emplace_back("data_wait_permille", std::llround(wait.share() * 1000));
}

}  // namespace ait::inline v0
