// SPDX-License-Identifier: Apache-2.0
#include "ait/launch/error_file.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "ait/base/durable_file.h"

namespace ait::inline v0 {

Status WriteErrorFile(const Status& failure, const Env& env) {
  if (failure.ok() || !env.torchelastic_error_file) return OkStatus();
  const std::string text = StrCat(CodeName(failure.code()), ": ", Message(failure));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  // The format of torch/distributed/elastic/multiprocessing/errors: the report shows py_callstack
  // and takes the earliest timestamp (seconds, as text) for the root cause.
  const nlohmann::json report = {
      {"message",
       {{"message", text},
        {"extraInfo",
         {{"py_callstack", text},
          {"timestamp",
           std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count())}}}}}};
  const std::string json =
      report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  AIT_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(*env.torchelastic_error_file));
  AIT_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(json))));
  return file.Commit();
}

}  // namespace ait::inline v0
