// SPDX-License-Identifier: Apache-2.0
// The index.json of MDS and of LitData, over files that are as they should be.
#include "data/format/format_entry_internal.h"
#include "fuzz/shard_fuzz.h"

namespace {

// The input as the index, beside the files of a good data set.
class Directory final : public ait::Storage {
 public:
  Directory(std::vector<std::string> names, const ait::ByteView& index) {
    for (const std::string& name : names) {
      Add(name.substr(name.rfind('/') + 1),
          ait::ByteView::Copy(ait::testing::SeedFiles({name}).front()));
    }
    Add("index.json", index);
  }
  std::string name() const override { return "directory"; }
  ait::StatusOr<std::shared_ptr<const ait::StoredObject>> Open(
      const std::string& url) const override {
    for (const auto& object : objects_) {
      if (object->info().url == url) return object;
    }
    return ait::NotFoundError(url);
  }
  ait::StatusOr<ait::ObjectInfo> Stat(const std::string& url) const override {
    AIT_ASSIGN_OR_RETURN(const auto object, Open(url));
    return object->info();
  }
  ait::Status List(const std::string&,
                   const std::function<ait::Status(const ait::ObjectInfo&)>& visit) const override {
    for (const auto& object : objects_) AIT_RETURN_IF_ERROR(visit(object->info()));
    return ait::OkStatus();
  }
  std::vector<ait::ObjectInfo> objects() const {
    std::vector<ait::ObjectInfo> infos;
    for (const auto& object : objects_) infos.push_back(object->info());
    return infos;
  }

 private:
  void Add(const std::string& name, const ait::ByteView& bytes) {
    objects_.push_back(ait::MemoryObject("d/" + name, bytes));
  }
  std::vector<std::shared_ptr<const ait::StoredObject>> objects_;
};

}  // namespace

std::vector<std::string> ait::testing::FuzzSeeds() {
  return SeedFiles({"mds_plain/index.json", "mds_zstd/index.json", "litdata/index.json"});
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto directory = std::make_shared<Directory>(
      std::vector<std::string>{"mds_plain/shard.00000.mds", "mds_zstd/shard.00001.mds.zstd",
                               "litdata/chunk-0-0.bin", "litdata/chunk-0-1.bin"},
      ait::testing::Copied(data, size));
  for (const ait::internal::CollectionFormat* format : ait::internal::CollectionFormats()) {
    if (format->name != "mds-index" && format->name != "litdata") continue;
    const auto source = format->open(directory, "d", directory->objects(), {});
    if (!source.ok()) continue;
    std::vector<ait::SampleRead> reads = {{.id = 0}, {.id = (*source)->sample_count() - 1}};
    (*source)->Read(reads);
    for (const ait::SampleRead& read : reads) {
      if (read.status.ok()) ait::testing::CheckSample(read.sample);
    }
  }
  return 0;
}
