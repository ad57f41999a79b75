// SPDX-License-Identifier: Apache-2.0
#include "ait/checkpoint/optimizer_state.h"

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
// clang-format on

#include "ait/checkpoint/safetensors.h"
#include "ait/comm/communicator.h"
#include "checkpoint/optimizer_options_internal.h"
#include "checkpoint/optimizer_pieces_internal.h"
#include "data/format/safetensors_header_internal.h"
#include "tensor/catch.h"

namespace ait::inline v0 {
namespace {

using internal::KeyOf;
using internal::StatePiece;
using nlohmann::json;

constexpr std::string_view kPrefix = "state.";
constexpr const char* kMaster = "master";
constexpr const char* kRemainder = "remainder";

Status CheckEngine(DataParallel& engine) {
  if (engine.optimizers().empty()) {
    return FailedPreconditionError("the engine has no optimizer; call SetOptimizer first");
  }
  for (const auto& optimizer : engine.optimizers()) {
    if (optimizer->step() == engine.optimizers()[0]->step()) continue;
    return FailedPreconditionError("the flat buffers of the engine are at steps ",
                                   engine.optimizers()[0]->step(), " and ", optimizer->step());
  }
  return engine.status();
}

// In which order the elements of blockwise states lie, where that is not row-major: strides by
// parameter.
json MemoryOrder(const std::map<std::string, const ParameterInfo*>& parameters,
                 const std::set<std::string>& blockwise) {
  json order = json::object();
  for (const std::string& name : blockwise) {
    const auto found = parameters.find(name);
    if (found == parameters.end()) continue;
    const ParameterInfo& info = *found->second;
    if (!ParameterSegment{.name = {}, .shape = info.sizes, .strides = info.strides}.is_row_major())
      order[name] = info.strides;
  }
  return order;
}

bool IsBlockwise(DType dtype) { return SizeOf(dtype) == 1; }

Status Write(const std::string& path, DataParallel& engine, const Optimizer& optimizer,
             const std::map<std::string, internal::WholeState>& states) {
  const auto parameters = internal::StatefulParameters(engine.layout());
  std::vector<ParameterSegment> segments;  // in the order of the model
  for (const ParameterInfo& info : engine.layout().parameters()) {
    if (parameters.contains(info.name))
      segments.push_back({.name = info.name, .shape = info.sizes});
  }
  std::set<std::string> blockwise;
  const std::int64_t step = engine.optimizers().empty() ? 0 : engine.optimizers()[0]->step();
  std::vector<TensorBytes> tensors;
  tensors.push_back({.name = "step",
                     .dtype = DType::kInt64,
                     .shape = {},
                     .bytes = std::as_bytes(std::span(&step, 1))});
  for (const auto& [key, state] : states) {
    tensors.push_back(
        {.name = key, .dtype = state.dtype, .shape = state.shape, .bytes = state.bytes});
    if (IsBlockwise(state.dtype))
      blockwise.insert(key.substr(kPrefix.size(), key.rfind('.') - kPrefix.size()));
  }
  return WriteSafetensors(path, tensors,
                          {{"format", "pt"},
                           {"optimizer_format", StrCat(kOptimizerFormat)},
                           {"optimizer", std::string(optimizer.name())},
                           {"state_version", StrCat(optimizer.state_version())},
                           {"description", optimizer.Describe()},
                           {"param_groups", internal::ParamGroupsText(optimizer, segments)},
                           {"memory_order", MemoryOrder(parameters, blockwise).dump()}});
}

// A file, and how each of this rank's pieces is read from it.
class Reader {
 public:
  static StatusOr<Reader> Create(const std::string& path, DataParallel& engine,
                                 const Optimizer& optimizer) {
    AIT_RETURN_IF_ERROR(CheckEngine(engine));
    AIT_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
    Reader reader(std::move(file), engine);
    AIT_RETURN_IF_ERROR(reader.CheckMetadata(optimizer));
    AIT_RETURN_IF_ERROR(reader.CheckStep());
    AIT_ASSIGN_OR_RETURN(const std::vector<StatePiece> pieces, internal::PiecesOf(engine));
    AIT_RETURN_IF_ERROR(reader.CheckTensors(pieces));
    return reader;
  }

  std::int64_t step() const { return step_; }
  std::string description() const { return Metadata("description").value_or(""); }

  // Fills a slice of state.
  Status Read(const StateSlice& slice) {
    const StatePiece piece = internal::PieceOf(slice);
    const ParameterInfo& info = *parameters_.at(piece.parameter);
    const std::string source = SourceOf(piece);
    AIT_RETURN_IF_ERROR(Fetch(KeyOf(piece.parameter, source)));
    const auto size = static_cast<std::size_t>(SizeOf(file_.Find(fetched_)->dtype));
    const auto count = static_cast<std::size_t>(piece.bytes / SizeOf(piece.dtype));
    std::vector<std::byte> entries(count * size);
    StatePiece as_stored = piece;
    as_stored.dtype = file_.Find(fetched_)->dtype;
    if (internal::IsPermuted(as_stored, info)) {
      const std::vector<std::int64_t> places = internal::RowMajorPlaces(info);
      for (std::size_t e = 0; e < count; ++e) {
        const auto place =
            static_cast<std::size_t>(places[static_cast<std::size_t>(piece.begin) + e]);
        std::memcpy(entries.data() + e * size, bytes_.data() + place * size, size);
      }
    } else {
      std::memcpy(entries.data(), bytes_.data() + static_cast<std::size_t>(piece.begin) * size,
                  entries.size());
    }
    if (source == piece.state) {
      std::ranges::copy(entries, slice.bytes.begin());
      return OkStatus();
    }
    return source == kMaster ? SplitMaster(entries, slice) : JoinRemainder(entries, slice);
  }

 private:
  Reader(SafetensorsFile file, DataParallel& engine)
      : file_(std::move(file)),
        engine_(engine),
        parameters_(internal::StatefulParameters(engine.layout())) {}

  template <typename... Parts>
  Status DoesNotFit(const Parts&... parts) const {
    return FailedPreconditionError(file_.path(), " does not fit the optimizer: ", parts...);
  }

  std::optional<std::string> Metadata(const std::string& key) const {
    const auto found = file_.metadata().find(key);
    return found == file_.metadata().end() ? std::nullopt : std::optional(found->second);
  }

  Status CheckMetadata(const Optimizer& optimizer) const {
    const std::pair<const char*, std::string> fields[] = {
        {"optimizer_format", StrCat(kOptimizerFormat)},
        {"optimizer", std::string(optimizer.name())},
        {"state_version", StrCat(optimizer.state_version())}};
    for (const auto& [key, own] : fields) {
      const auto value = Metadata(key);
      if (!value) return DoesNotFit("it has no field \"", key, "\", which would be \"", own, "\"");
      if (*value != own)
        return DoesNotFit("\"", key, "\" is \"", *value, "\" in the file and \"", own, "\" here");
    }
    return OkStatus();
  }

  Status CheckStep() {
    const TensorInfo* info = file_.Find("step");
    if (info == nullptr) return DoesNotFit("it has no \"step\"");
    if (info->dtype != DType::kInt64 || !info->shape.empty()) {
      return DoesNotFit("\"step\" is ", internal::DescribeTensor(info->dtype, info->shape),
                        " in the file; it must be I64 []");
    }
    AIT_RETURN_IF_ERROR(file_.Read(*info, std::as_writable_bytes(std::span(&step_, 1))));
    if (step_ < 0)
      return DoesNotFit("\"step\" is ", step_, " in the file; it must not be negative");
    return OkStatus();
  }

  // The name under which the state of a piece is in the file.
  std::string SourceOf(const StatePiece& piece) const {
    if (file_.Find(KeyOf(piece.parameter, piece.state)) != nullptr) return piece.state;
    for (const auto& [own, other] :
         {std::pair(kMaster, kRemainder), std::pair(kRemainder, kMaster)}) {
      if (piece.state == own && file_.Find(KeyOf(piece.parameter, other)) != nullptr) return other;
    }
    return piece.state;
  }

  Status CheckTensors(const std::vector<StatePiece>& pieces) const {
    std::map<std::string, std::set<std::string>> used;  // names of states, by parameter
    std::set<std::string> blockwise;
    for (const StatePiece& piece : pieces) {
      const std::string source = SourceOf(piece);
      used[piece.parameter].insert(source);
      if (IsBlockwise(piece.dtype)) blockwise.insert(piece.parameter);
      AIT_RETURN_IF_ERROR(CheckPiece(piece, source));
    }
    for (const TensorInfo& info : file_.tensors()) {
      if (info.name == "step") continue;
      const std::size_t end = info.name.rfind('.');
      if (!info.name.starts_with(kPrefix) || end < kPrefix.size()) {
        return DoesNotFit("\"", info.name,
                          "\" is neither \"step\" nor \"state.<parameter>.<name>\"");
      }
      const std::string parameter = info.name.substr(kPrefix.size(), end - kPrefix.size());
      const std::string state = info.name.substr(end + 1);
      if (!parameters_.contains(parameter)) {
        return DoesNotFit("the file has \"", state, "\" of parameter \"", parameter,
                          "\", which is not a trainable parameter of the model");
      }
      if (used.contains(parameter) && !used[parameter].contains(state)) {
        return DoesNotFit("the file has \"", state, "\" (",
                          internal::DescribeTensor(info.dtype, info.shape), ") of parameter \"",
                          parameter, "\", which the optimizer here does not keep");
      }
    }
    return CheckMemoryOrder(blockwise);
  }

  Status CheckPiece(const StatePiece& piece, const std::string& source) const {
    const ParameterInfo& parameter = *parameters_.at(piece.parameter);
    const TensorInfo* info = file_.Find(KeyOf(piece.parameter, source));
    const std::vector<std::int64_t> shape = internal::FileShape(piece, parameter);
    const std::string own = internal::DescribeTensor(piece.dtype, shape);
    if (info == nullptr) {
      return DoesNotFit("the file has no \"", piece.state, "\" of parameter \"", piece.parameter,
                        "\", which is ", own, " here");
    }
    const DType dtype = source == piece.state ? piece.dtype
                        : source == kMaster   ? DType::kFloat32
                                              : DType::kUInt16;
    if (info->dtype != dtype || info->shape != shape) {
      return DoesNotFit("\"", source, "\" of parameter \"", piece.parameter, "\" is ",
                        internal::DescribeTensor(info->dtype, info->shape), " in the file and ",
                        own, " here");
    }
    return source == kRemainder && source != piece.state ? CheckWhole(piece.parameter) : OkStatus();
  }

  Status CheckMemoryOrder(const std::set<std::string>& blockwise) const {
    const json own = MemoryOrder(parameters_, blockwise);
    const json theirs = json::parse(Metadata("memory_order").value_or("{}"), nullptr, false);
    if (theirs.is_discarded() || !theirs.is_object())
      return DoesNotFit("\"memory_order\" is \"", *Metadata("memory_order"), "\", no JSON object");
    for (const std::string& name : blockwise) {
      const json mine = own.contains(name) ? own.at(name) : json("row-major");
      const json other = theirs.contains(name) ? theirs.at(name) : json("row-major");
      if (mine == other) continue;
      return DoesNotFit("parameter \"", name, "\" has blockwise state and strides ", other.dump(),
                        " in the file and ", mine.dump(), " here");
    }
    return OkStatus();
  }

  // The elements of a parameter where they lie; null if they are not whole in memory.
  const std::uint16_t* HalvesOf(const std::string& parameter) const {
    const NamedTensors& tensors = engine_.parameters();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors.name(i) != parameter) continue;
      const at::Tensor& tensor = tensors.tensor(i);
      const bool is_whole = tensor.scalar_type() == at::kBFloat16 && tensor.is_cpu() &&
                            tensor.storage().nbytes() >= tensor.nbytes();
      return is_whole ? static_cast<const std::uint16_t*>(tensor.const_data_ptr()) : nullptr;
    }
    return nullptr;
  }

  Status CheckWhole(const std::string& parameter) const {
    if (HalvesOf(parameter) != nullptr) return OkStatus();
    return DoesNotFit("parameter \"", parameter,
                      "\" has a \"remainder\" in the file and a "
                      "\"master\" here, and is not whole in memory; load into an engine that keeps "
                      "remainders, or one that shards no parameters");
  }

  static Status SplitMaster(const std::vector<std::byte>& masters, const StateSlice& slice) {
    for (std::size_t i = 0; i < slice.bytes.size() / 2; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, masters.data() + 4 * i, 4);
      const auto low = static_cast<std::uint16_t>(bits);
      std::memcpy(slice.bytes.data() + 2 * i, &low, 2);
    }
    return OkStatus();
  }

  // The upper half is the parameter, rounded to the nearest: above or below by a signed remainder.
  Status JoinRemainder(const std::vector<std::byte>& remainders, const StateSlice& slice) const {
    const std::uint16_t* const high = HalvesOf(std::string(slice.parameter)) + slice.begin;
    for (std::size_t i = 0; i < slice.bytes.size() / 4; ++i) {
      std::uint16_t low = 0;
      std::memcpy(&low, remainders.data() + 2 * i, 2);
      const std::uint32_t below = (std::uint32_t{low} ^ 0x8000u) - 0x8000u;
      const std::uint32_t bits = (std::uint32_t{high[i]} << 16) + below;
      std::memcpy(slice.bytes.data() + 4 * i, &bits, 4);
    }
    return OkStatus();
  }

  // Slices of one array come one after the other: it is read once.
  Status Fetch(const std::string& key) {
    if (fetched_ == key) return OkStatus();
    const TensorInfo& info = *file_.Find(key);
    bytes_.resize(static_cast<std::size_t>(info.bytes().value()));
    fetched_.clear();
    AIT_RETURN_IF_ERROR(file_.Read(info, bytes_));
    fetched_ = key;
    return OkStatus();
  }

  SafetensorsFile file_;
  DataParallel& engine_;
  std::map<std::string, const ParameterInfo*> parameters_;
  std::int64_t step_ = 0;
  std::string fetched_;
  std::vector<std::byte> bytes_;
};

Status Fill(DataParallel& engine, Reader& reader) {
  for (const auto& optimizer : engine.optimizers()) {
    AIT_RETURN_IF_ERROR(optimizer->VisitState(
        StateAccess::kReadWrite, [&](const StateSlice& slice) { return reader.Read(slice); }));
    AIT_RETURN_IF_ERROR(optimizer->set_step(reader.step()));
  }
  return OkStatus();
}

}  // namespace

Status SaveOptimizer(const std::string& path, DataParallel& engine, const Optimizer& optimizer) {
  const Status saved = internal::CatchAsStatus([&]() -> Status {
    AIT_ASSIGN_OR_RETURN(const auto states, internal::GatherState(engine, CheckEngine(engine)));
    return engine.communicator()->rank().value() == 0 ? Write(path, engine, optimizer, states)
                                                      : OkStatus();
  });
  return internal::OneOutcome(engine, saved,
                              StrCat("optimizer state saved: ", optimizer.Describe()));
}

StatusOr<LoadedOptimizer> LoadOptimizer(const std::string& path, DataParallel& engine,
                                        const Optimizer& optimizer) {
  StatusOr<Reader> reader =
      internal::CatchAsStatus([&] { return Reader::Create(path, engine, optimizer); });
  AIT_RETURN_IF_ERROR(
      internal::OneOutcome(engine, reader.status(),
                           StrCat("optimizer state of step ", reader.ok() ? reader->step() : -1,
                                  ": ", optimizer.Describe())));
  const Status filled = internal::CatchAsStatus([&] { return Fill(engine, *reader); });
  const Status agreed = internal::OneOutcome(engine, filled, "optimizer state loaded");
  if (!agreed.ok()) return Annotate(agreed, "optimizer state is partly loaded");
  return LoadedOptimizer{.step = reader->step(), .description = reader->description()};
}

}  // namespace ait::inline v0
