// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/optimizer_pieces_internal.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <tuple>

#include "ait/comm/communicator.h"

namespace ait::inline v0::internal {
namespace {

using nlohmann::json;

std::int64_t ProductOf(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string TextOf(const Status& local, const std::vector<StatePiece>& pieces) {
  json list = json::array();
  for (const StatePiece& p : pieces) {
    list.push_back(
        {p.parameter, p.state, p.begin, static_cast<int>(p.dtype), p.block, p.shape, p.bytes});
  }
  return json{{"error", local.ok() ? "" : Message(local)}, {"pieces", std::move(list)}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

std::vector<StatePiece> PiecesFrom(const json& text) {
  std::vector<StatePiece> pieces;
  for (const json& p : text.at("pieces")) {
    pieces.push_back({.parameter = p.at(0).get<std::string>(),
                      .state = p.at(1).get<std::string>(),
                      .begin = p.at(2).get<std::int64_t>(),
                      .dtype = static_cast<DType>(p.at(3).get<int>()),
                      .block = p.at(4).get<std::int64_t>(),
                      .shape = p.at(5).get<std::vector<std::int64_t>>(),
                      .bytes = p.at(6).get<std::int64_t>()});
  }
  return pieces;
}

// The texts of all ranks.
StatusOr<std::vector<std::string>> AllGatherText(Communicator& communicator, std::string mine) {
  const auto ranks = static_cast<std::size_t>(communicator.size().value());
  std::vector<std::int64_t> own = {static_cast<std::int64_t>(mine.size())}, counts(ranks);
  AIT_RETURN_IF_ERROR(
      communicator.AllGather(View(own), View(counts), {.label = "sizes of optimizer state"})
          .Wait());
  std::string all(static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0L)),
                  '\0');
  AIT_RETURN_IF_ERROR(
      communicator
          .AllGather({mine.data(), own[0], DType::kUInt8},
                     {all.data(), static_cast<std::int64_t>(all.size()), DType::kUInt8}, counts,
                     {.label = "names of optimizer state"})
          .Wait());
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (const std::int64_t count : counts) {
    texts.push_back(all.substr(begin, static_cast<std::size_t>(count)));
    begin += static_cast<std::size_t>(count);
  }
  return texts;
}

// Of each rank, for each of its pieces: whether it is the one that gives it.
std::vector<std::vector<bool>> Givers(const std::vector<std::vector<StatePiece>>& of_rank) {
  std::set<std::tuple<std::string, std::string, std::int64_t>> given;
  std::vector<std::vector<bool>> gives;
  for (const auto& pieces : of_rank) {
    std::vector<bool>& mine = gives.emplace_back();
    for (const StatePiece& piece : pieces)
      mine.push_back(given.emplace(piece.parameter, piece.state, piece.begin).second);
  }
  return gives;
}

StatusOr<std::map<std::string, WholeState>> Assemble(
    const FlatLayout& layout, const std::vector<std::vector<StatePiece>>& of_rank,
    const std::vector<std::vector<bool>>& gives, const std::vector<std::byte>& bytes) {
  const auto parameters = StatefulParameters(layout);
  std::map<std::string, WholeState> states;
  std::map<std::string, std::int64_t> missing;  // bytes, by key
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    for (std::size_t i = 0; i < of_rank[rank].size(); ++i) {
      if (!gives[rank][i]) continue;
      const StatePiece& piece = of_rank[rank][i];
      const auto parameter = parameters.find(piece.parameter);
      if (parameter == parameters.end()) {
        return InternalError("there is optimizer state of \"", piece.parameter,
                             "\", which is no parameter of the engine");
      }
      const ParameterInfo& info = *parameter->second;
      const std::string key = KeyOf(piece.parameter, piece.state);
      WholeState& state = states[key];
      const std::int64_t size = SizeOf(piece.dtype);
      if (state.shape.empty() && state.bytes.empty()) {
        state.dtype = piece.dtype;
        state.shape = FileShape(piece, info);
        missing[key] = ProductOf(state.shape) * size;
        state.bytes.resize(static_cast<std::size_t>(missing[key]));
      }
      if ((piece.begin * size + piece.bytes) > static_cast<std::int64_t>(state.bytes.size())) {
        return InternalError("state \"", key, "\" has parts beyond its end");
      }
      missing[key] -= piece.bytes;
      const std::byte* const from = bytes.data() + at;
      at += static_cast<std::size_t>(piece.bytes);
      if (IsPermuted(piece, info)) {
        const std::vector<std::int64_t> places = RowMajorPlaces(info);
        for (std::int64_t e = 0; e < piece.bytes / size; ++e) {
          std::memcpy(state.bytes.data() + places[static_cast<std::size_t>(piece.begin + e)] * size,
                      from + e * size, static_cast<std::size_t>(size));
        }
      } else {
        std::memcpy(state.bytes.data() + piece.begin * size, from,
                    static_cast<std::size_t>(piece.bytes));
      }
    }
  }
  for (const auto& [key, rest] : missing) {
    if (rest != 0) return InternalError("no rank owns ", rest, " bytes of state \"", key, "\"");
  }
  return states;
}

}  // namespace

StatePiece PieceOf(const StateSlice& slice) {
  return {.parameter = std::string(slice.parameter),
          .state = std::string(slice.state),
          .begin = slice.begin,
          .dtype = slice.dtype,
          .block = slice.block,
          .shape = {slice.shape.begin(), slice.shape.end()},
          .bytes = static_cast<std::int64_t>(slice.bytes.size())};
}

StatusOr<std::vector<StatePiece>> PiecesOf(DataParallel& engine) {
  std::vector<StatePiece> pieces;
  for (const auto& optimizer : engine.optimizers()) {
    AIT_RETURN_IF_ERROR(optimizer->VisitState(StateAccess::kRead, [&](const StateSlice& slice) {
      pieces.push_back(PieceOf(slice));
      return OkStatus();
    }));
  }
  return pieces;
}

std::string KeyOf(std::string_view parameter, std::string_view state) {
  return StrCat("state.", parameter, ".", state);
}

std::vector<std::int64_t> FileShape(const StatePiece& piece, const ParameterInfo& info) {
  if (!piece.shape.empty()) return piece.shape;
  if (piece.block == 1) return info.sizes;
  return {(info.count() + piece.block - 1) / piece.block};
}

bool IsPermuted(const StatePiece& piece, const ParameterInfo& info) {
  const ParameterSegment segment{.name = {}, .shape = info.sizes, .strides = info.strides};
  // Codes of blocks are of one byte and stay with their scales.
  return piece.shape.empty() && piece.block == 1 && SizeOf(piece.dtype) > 1 &&
         !segment.is_row_major();
}

std::vector<std::int64_t> RowMajorPlaces(const ParameterInfo& info) {
  std::vector<std::int64_t> places(static_cast<std::size_t>(info.count()));
  for (std::int64_t i = 0; i < info.count(); ++i) {
    std::int64_t rest = i, place = 0;
    for (std::size_t d = info.sizes.size(); d-- > 0;) {
      place += rest % info.sizes[d] * info.strides[d];
      rest /= info.sizes[d];
    }
    places[static_cast<std::size_t>(place)] = i;
  }
  return places;
}

StatusOr<std::map<std::string, WholeState>> GatherState(DataParallel& engine, const Status& local) {
  Communicator& communicator = *engine.communicator();
  StatusOr<std::vector<StatePiece>> mine = std::vector<StatePiece>();
  if (local.ok()) mine = PiecesOf(engine);
  const Status found = local.ok() ? mine.status() : local;
  AIT_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      AllGatherText(communicator, TextOf(found, mine.ok() ? *mine : std::vector<StatePiece>())));
  std::vector<std::vector<StatePiece>> of_rank;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const json text = json::parse(texts[rank]);
    if (const std::string error = text.at("error"); !error.empty()) {
      return FailedPreconditionError("rank ", rank, ": ", error);
    }
    of_rank.push_back(PiecesFrom(text));
  }
  const std::vector<std::vector<bool>> gives = Givers(of_rank);
  std::vector<std::int64_t> counts;
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    std::int64_t& count = counts.emplace_back(0);
    for (std::size_t i = 0; i < of_rank[rank].size(); ++i) {
      if (gives[rank][i]) count += of_rank[rank][i].bytes;
    }
  }
  const auto me = static_cast<std::size_t>(communicator.rank().value());
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<std::size_t>(counts[me]));
  std::size_t i = 0;
  Status read;  // after this point all ranks go on: an unread piece is sent as zeros
  for (const auto& optimizer : engine.optimizers()) {
    const Status visited = optimizer->VisitState(StateAccess::kRead, [&](const StateSlice& slice) {
      if (gives[me][i++]) bytes.insert(bytes.end(), slice.bytes.begin(), slice.bytes.end());
      return OkStatus();
    });
    if (read.ok()) read = visited;
  }
  bytes.resize(static_cast<std::size_t>(counts[me]));
  std::vector<std::byte> all(
      me == 0 ? static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0L)) : 0);
  AIT_RETURN_IF_ERROR(
      communicator
          .Gather({bytes.data(), counts[me], DType::kUInt8},
                  {all.data(), static_cast<std::int64_t>(all.size()), DType::kUInt8}, counts,
                  Rank(0), {.label = "optimizer state"})
          .Wait());
  AIT_RETURN_IF_ERROR(read);
  if (me != 0) return std::map<std::string, WholeState>();
  bytes = {};
  return Assemble(engine.layout(), of_rank, gives, all);
}

Status OneOutcome(DataParallel& engine, const Status& local, const std::string& fact) {
  Communicator& communicator = *engine.communicator();
  if (communicator.size().value() == 1) return local;
  const json mine = {{"code", static_cast<int>(local.code())},
                     {"message", local.ok() ? fact : Message(local)}};
  AIT_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      AllGatherText(communicator, mine.dump(-1, ' ', false, json::error_handler_t::replace)));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const json theirs = json::parse(texts[rank]);
    if (theirs.at("code") == 0) continue;
    return Status(static_cast<StatusCode>(theirs.at("code").get<int>()),
                  StrCat("rank ", rank, ": ", theirs.at("message").get<std::string>()));
  }
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    return FailedPreconditionError("the ranks do not do the same: rank 0: ",
                                   json::parse(texts[0]).at("message").get<std::string>(),
                                   "; rank ", rank, ": ",
                                   json::parse(texts[rank]).at("message").get<std::string>());
  }
  return OkStatus();
}

std::map<std::string, const ParameterInfo*> StatefulParameters(const FlatLayout& layout) {
  std::map<std::string, const ParameterInfo*> parameters;
  for (const ParameterInfo& info : layout.parameters()) {
    if (info.role == ParameterInfo::Role::kTrainable && info.tied_to < 0 && info.count() > 0) {
      parameters[info.name] = &info;
    }
  }
  return parameters;
}

}  // namespace ait::inline v0::internal
