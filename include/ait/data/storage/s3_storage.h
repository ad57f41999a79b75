// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_S3_STORAGE_H_
#define AIT_DATA_STORAGE_S3_STORAGE_H_

// Objects of S3, and of what speaks its protocol (MinIO, Ceph, R2, …): "s3://bucket/key".
//
//   auto s3 = S3Storage::Create({});                    // keys and region as other programs find them
//   auto shard = (*s3)->Open("s3://corpus/train/shard-00000.tar");
//
//   auto minio = S3Storage::Create({.endpoint = "http://10.0.0.7:9000"});
//
// The key is what follows the bucket, as it is: no character of it is special, so "a b+c%41" is the
// key "a b+c%41". Reads are as those of HttpStorage; each request is signed anew for each try.
// Endpoint, region and keys come from the options, else the environment, else the profile; see
// docs/remote-data.md.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "ait/base/status.h"
#include "ait/data/storage/aws_credentials.h"
#include "ait/data/storage/http_storage.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {

enum class S3Addressing {
  kAutomatic,  // virtual on AWS where the name allows it, else path
  kPath,       // endpoint/bucket/key
  kVirtual,    // bucket.endpoint/key
};

struct S3StorageOptions {
  std::string region = {};    // default: AWS_REGION, the profile's, else us-east-1
  std::string endpoint = {};  // default: AWS_ENDPOINT_URL_S3, the profile's, else that of AWS
  S3Addressing addressing = S3Addressing::kAutomatic;
  /// Default: FindAwsCredentials({.profile = profile, .environment = environment}).
  std::shared_ptr<AwsCredentialSource> credentials = {};
  std::string profile = {};
  AwsEnvironment environment = AwsEnvironment::FromProcess();
  HttpOptions http = {};
};

class S3Storage final : public Storage {
 public:
  /// Sends nothing yet. **Errors.** InvalidArgument: an option out of its range; NotFound: no such
  /// profile; FailedPrecondition: no keys; Unimplemented: built without libcurl.
  static StatusOr<std::shared_ptr<S3Storage>> Create(const S3StorageOptions& options);
  ~S3Storage() override;

  std::string name() const override;
  StatusOr<std::shared_ptr<const StoredObject>> Open(const std::string& url) const override;
  StatusOr<ObjectInfo> Stat(const std::string& url) const override;
  /// Markers of directories (empty objects whose key ends in '/') are left out. FailedPrecondition:
  /// the service does not list in the order of the keys' bytes.
  Status List(const std::string& prefix,
              const std::function<Status(const ObjectInfo&)>& visit) const override;

  /// Writes an object, in parts if it is larger than `http.part_bytes` (then at least 5 MiB); what
  /// was there is replaced at once or not at all. **Errors.** As `Open`; a failed upload in parts
  /// is taken back.
  Status Put(const std::string& url, std::span<const std::byte> bytes) const;
  /// Removes an object; ok if there was none.
  Status Remove(const std::string& url) const;

 private:
  struct Impl;
  explicit S3Storage(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_S3_STORAGE_H_
