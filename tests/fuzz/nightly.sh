#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzzes every target for some time: tests/fuzz/nightly.sh [SECONDS] [NAME...]; 60 seconds each if not
# said otherwise. Inputs that were found worth keeping stay in build/fuzz/corpus/NAME and are used by the
# next run. Needs clang-19 and libclang-rt-19-dev. Ends with 1 if a target failed; what made it fail lies
# in build/fuzz/failures.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-60}
[ $# -gt 0 ] && shift
cmake --preset fuzz > /dev/null
names=${*:-$(sed -n 's/^ait_fuzz(\([a-z0-9_]*\).*/\1/p' tests/fuzz/CMakeLists.txt)}
targets=
for name in $names; do targets="$targets fuzz_$name"; done
cmake --build build/fuzz --target $targets
mkdir -p build/fuzz/failures
failed=
for name in $names; do
  corpus=build/fuzz/corpus/$name
  mkdir -p "$corpus"
  AIT_FUZZ_SEEDS=$corpus build/fuzz/tests/fuzz/fuzz_"$name"
  echo "== $name"
  build/fuzz/tests/fuzz/fuzz_"$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix=build/fuzz/failures/"$name"- "$corpus" || failed="$failed $name"
done
[ -z "$failed" ] || { echo "failed:$failed; the inputs lie in build/fuzz/failures"; exit 1; }
