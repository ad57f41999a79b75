// SPDX-License-Identifier: Apache-2.0
#include "cli/log_files.h"

#include <cerrno>
#include <filesystem>

namespace ait::cli {

Status LogFiles::Open(const std::string& folder, int first_rank, int count) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoError(error.value(), "cannot make the folder ", folder);
  first_rank_ = first_rank;
  for (int rank = first_rank; rank < first_rank + count; ++rank) {
    const std::string path = StrCat(folder, "/rank-", rank, ".log");
    files_.emplace_back(std::fopen(path.c_str(), "we"));
    if (files_.back() == nullptr) return ErrnoError(errno, "cannot write ", path);
    std::setvbuf(files_.back().get(), nullptr, _IONBF, 0);  // each piece is on disk at once
  }
  return OkStatus();
}

void LogFiles::Write(Rank rank, RankStream stream, std::string_view text) {
  std::FILE* file = files_[static_cast<std::size_t>(rank.value() - first_rank_)].get();
  if (status_.ok() && std::fwrite(text.data(), 1, text.size(), file) != text.size()) {
    status_ = ErrnoError(errno, "cannot write the log of rank ", rank);
  }
  next_->Write(rank, stream, text);
}

}  // namespace ait::cli
