// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_MDS_H_
#define AIT_DATA_FORMAT_MDS_H_

// The index of a directory of MDS shards, MosaicML Streaming's format.
//
// Shards are written by CreateShard with the format "mds". A directory of them becomes a data set
// that Streaming (and OpenSamples) reads when index.json is there; it is written last and durably,
// so that a directory with an index is complete.
//
//   std::vector<std::string> names = {"shard.00000.mds", "shard.00001.mds"};
//   AIT_RETURN_IF_ERROR(WriteMdsIndex("train", names));

#include <span>
#include <string>

#include "ait/base/status.h"

namespace ait::inline v0 {

/// Writes `directory`/index.json over the shards of these names in it, in this order. **Blocks.**
/// Reads the header of each. **Errors.** InvalidArgument: a name with a slash; DataLoss: a shard is
/// damaged; NotFound; else by errno.
Status WriteMdsIndex(const std::string& directory, std::span<const std::string> names);

}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_MDS_H_
