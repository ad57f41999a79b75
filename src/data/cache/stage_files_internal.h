// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_CACHE_STAGE_FILES_INTERNAL_H_
#define AIT_DATA_CACHE_STAGE_FILES_INTERNAL_H_

// The files of a directory that data is staged to, finished or not, and its manifest.
//
//   NAME                  a finished file
//   ait-stage.json        all finished files with their checksums
//   .ait-stage/KEY.data   an unfinished file
//   .ait-stage/KEY.map    its part map ("part_map_internal.h"); until the manifest has the file

#include <cstdint>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/cache/stage.h"
#include "data/cache/part_map_internal.h"

namespace ait::inline v0 {
namespace internal {

inline constexpr char kStageManifest[] = "ait-stage.json";
inline constexpr char kStageFolder[] = ".ait-stage";

struct StagedFile {
  std::string name;  // relative to the directory
  std::string url;
  std::string version;
  std::int64_t size_bytes = 0;
  std::int64_t part_bytes = 0;
  std::vector<std::uint32_t> crcs;  // of the parts

  // While it is staged:
  std::string key;         // name of its files in kStageFolder
  PartMapHeader header{};  // of its map
  enum class State { kNew, kPartial, kUnlisted, kFinished };
  State state = State::kNew;
  std::vector<std::uint8_t> have;  // a part is in the data file

  int parts() const { return static_cast<int>(crcs.size()); }
  std::int64_t PartOffset(int part) const { return part_bytes * part; }
  std::int64_t PartLength(int part) const;
};

std::string StagedToJson(const std::vector<StagedFile>& files,
                         const std::vector<StagedFile>& others);
StatusOr<std::vector<StagedFile>> StagedFromJson(std::string_view text);

/// What the source has, and what of it the directory has.
class StagePlan {
 public:
  static StatusOr<StagePlan> Make(const Storage& source, const std::string& prefix,
                                  const StageOptions& options);

  std::vector<StagedFile> files;
  std::vector<StagedFile> others;  // finished by other calls, and not of this source
  StageReport report;

  std::string FinalPath(const StagedFile& file) const;
  std::string DataPath(const StagedFile& file) const;
  std::string MapPath(const StagedFile& file) const;

 private:
  explicit StagePlan(std::string directory) : directory_(std::move(directory)) {}
  Status ListSource(const Storage& source, const std::string& prefix, std::int64_t part_bytes);
  Status CheckNames() const;
  void LookUp(StagedFile& file, const StagedFile* listed) const;

  std::string directory_;
};

/// Copies the missing parts of all files, then reads back and names what is not finished.
Status RunStage(const Storage& source, const StageOptions& options, StagePlan& plan);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_CACHE_STAGE_FILES_INTERNAL_H_
