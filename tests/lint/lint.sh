#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks format and lints: tests/lint/lint.sh [format|tree|tidy|all] [BUILD_DIR]. A missing tool is an error.
#   format  clang-format 19 over every C++ file
#   tree    tests/lint/check_tree.py
#   tidy    clang-tidy 19 over every source in BUILD_DIR/compile_commands.json (default build/tidy; configure
#           it by `cmake --preset tidy`); TIDY_ONLY=REGEX limits the files, for example to the lower floor
set -euo pipefail
cd "$(dirname "$0")/../.."
what=${1:-all}
build=${2:-build/tidy}

need() {
  command -v "$1" >/dev/null || { echo "lint: $1 is missing; install $2" >&2; exit 2; }
}
check_format() {
  need clang-format-19 clang-format-19
  git ls-files '*.h' '*.cc' '*.cu' | xargs -r clang-format-19 --dry-run -Werror
  echo "format: clean"
}
check_tree() {
  need python3 python3
  python3 tests/lint/check_tree.py .
}
check_tidy() {
  need clang-tidy-19 clang-tidy-19
  need python3 python3
  [ -f "$build/compile_commands.json" ] || { echo "lint: $build/compile_commands.json is missing" >&2; exit 2; }
  local only=${TIDY_ONLY:-'^(src|examples)/'}
  git ls-files '*.cc' | grep -E "$only" | xargs -r -P "$(nproc)" -n 1 \
    clang-tidy-19 --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option -p "$build"
  echo "tidy: clean"
}
case "$what" in
  format) check_format ;;
  tree) check_tree ;;
  tidy) check_tidy ;;
  all) check_format; check_tree; check_tidy ;;
  *) echo "lint: unknown check $what" >&2; exit 2 ;;
esac
