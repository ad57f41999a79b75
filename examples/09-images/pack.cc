// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "ait/base/durable_file.h"
#include "ait/data/decode/jpeg.h"
#include "ait/data/format/formats.h"
#include "ait/data/storage/local_storage.h"
#include "images.h"

namespace {

constexpr std::int64_t kShardSamples = 5'000;

// The idx file PREFIX-images-idx3-ubyte.gz or PREFIX-labels-idx1-ubyte.gz: a row is a sample.
ait::StatusOr<std::unique_ptr<ait::ShardReader>> OpenIdx(const ait::Storage& storage,
                                                         const std::string& path) {
  AIT_ASSIGN_OR_RETURN(auto object, storage.Open(path));
  return ait::OpenShard(std::move(object));
}

ait::Status Pack(const ait::Storage& storage, const std::string& prefix, const std::string& out) {
  AIT_ASSIGN_OR_RETURN(const auto images, OpenIdx(storage, prefix + "-images-idx3-ubyte.gz"));
  AIT_ASSIGN_OR_RETURN(const auto labels, OpenIdx(storage, prefix + "-labels-idx1-ubyte.gz"));
  AIT_RETURN_IF_ERROR(ait::MakeDirectoryDurably(out));
  std::unique_ptr<ait::ShardWriter> shard;
  for (std::int64_t i = 0; i < images->record_count(); ++i) {
    if (i % kShardSamples == 0) {
      if (shard) AIT_RETURN_IF_ERROR(shard->Commit());
      AIT_ASSIGN_OR_RETURN(
          shard, ait::CreateShard(ait::StrCat(out, "/", 100 + i / kShardSamples, ".tar")));
    }
    AIT_ASSIGN_OR_RETURN(const ait::Sample row, images->ReadRecord(i));
    AIT_ASSIGN_OR_RETURN(const ait::Sample label, labels->ReadRecord(i));
    AIT_ASSIGN_OR_RETURN(const ait::ImageView pixels, ait::ImageOf(row.fields.at(0)));
    AIT_ASSIGN_OR_RETURN(const std::vector<std::byte> jpeg,
                         ait::EncodeJpeg(pixels, {.quality = 95}));
    const int number = std::to_integer<int>(label.fields.at(0).value.bytes()[0]);
    ait::Sample sample{.key = std::to_string(100'000 + i)};
    sample.Set({.name = "jpg", .value = ait::ByteView::Copy(jpeg)});
    sample.Set({.name = "cls", .value = ait::ByteView::Copy(std::to_string(number))});
    AIT_RETURN_IF_ERROR(shard->Append(sample));
  }
  if (shard) AIT_RETURN_IF_ERROR(shard->Commit());
  std::printf("%s: %lld images\n", out.c_str(), static_cast<long long>(images->record_count()));
  return ait::OkStatus();
}

}  // namespace

ait::Status PackImages(const std::string& folder, const std::string& out) {
  AIT_ASSIGN_OR_RETURN(const auto storage, ait::LocalStorage::Create());
  AIT_RETURN_IF_ERROR(Pack(*storage, folder + "/train", out + "/train"));
  return Pack(*storage, folder + "/t10k", out + "/test");
}
