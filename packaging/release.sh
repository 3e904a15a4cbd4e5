#!/usr/bin/env bash
# Makes a release in dist/VERSION: static binaries and Debian packages for amd64 and arm64, an SBOM, and checksums.
#
#   packaging/release.sh VERSION            everything
#   packaging/release.sh --check VERSION    only what needs no build: is this commit one that may become the release?
#
# What is built is the commit, exported to a directory of its own: nothing that lies around in the tree gets into it.
#
# Zig is the C compiler and linker for both targets (`cargo zigbuild`): Debian has a compiler for musl on the machine's own
# architecture alone. With RELEASE_BUILD=build, plain `cargo build` is used, with the tools that you name by
# CARGO_TARGET_<TARGET>_LINKER and CC_<TARGET>.
set -euo pipefail

ZIGBUILD_VERSION=0.24.1
DEB_VERSION=3.8.0
CYCLONEDX_VERSION=0.5.9
declare -A TARGETS=([amd64]=x86_64-unknown-linux-musl [arm64]=aarch64-unknown-linux-musl)
RELEASE_BUILD=${RELEASE_BUILD:-zigbuild}

die() { echo "error: $*" >&2; exit 1; }
step() { printf '==> %s\n' "$*"; }
usage() { echo "usage: packaging/release.sh [--check] VERSION" >&2; exit 2; }

check_commit() {
  [[ $VERSION =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || die "$VERSION is not a semantic version"
  [[ -z $(git status --porcelain) ]] || die "the tree is dirty: commit or remove what \`git status\` shows"
  local manifest
  manifest=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
  [[ $manifest == "$VERSION" ]] || die "Cargo.toml has the version $manifest, not $VERSION"
  # A heading that says "unreleased" is not one of a release.
  grep -qE "^## \[${VERSION//./\\.}\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md \
    || die "CHANGELOG.md has no heading \"## [$VERSION] - YYYY-MM-DD\""
  local kustomization
  for kustomization in packaging/kubernetes/*/kustomization.yaml; do
    grep -qF "newTag: $VERSION " "$kustomization" || die "$kustomization names another version than $VERSION"
  done
}

# Fails unless `cargo NAME` has the pinned version, so that two releases are made by the same tools. Some tell their version as a
# subcommand of cargo, others as a program.
check_tool() {
  local name=$1 version=$2
  { cargo "$name" --version || "cargo-$name" --version; } 2>/dev/null | grep -wF "$version" >/dev/null \
    || die "cargo $name $version is missing: cargo install --locked cargo-$name --version $version"
}

check_tools() {
  [[ $RELEASE_BUILD == build ]] || check_tool "$RELEASE_BUILD" "$ZIGBUILD_VERSION"
  check_tool deb "$DEB_VERSION"
  check_tool cyclonedx "$CYCLONEDX_VERSION"
  local target
  for target in "${TARGETS[@]}"; do
    rustc --print target-libdir --target "$target" | xargs test -d || die "rustup target add $target"
  done
}

# Completions and manual pages come from the binary itself.
generate_docs() {
  local binary=$1 to=$2 shell
  mkdir -p "$to/completions"
  for shell in bash zsh fish; do "$binary" completions "$shell" >"$to/completions/xds-server.$shell"; done
  "$binary" man "$to/man/man1"
}

build() {
  local architecture=$1 target=${TARGETS[$1]} name
  step "$architecture: build"
  (cd "$SOURCE" && cargo "$RELEASE_BUILD" --release --locked --package xds-server --bin xds-server --target "$target" \
    --config 'profile.release.strip="symbols"')
  name=xds-server-$VERSION-linux-$architecture
  mkdir -p "$WORK/$name"
  cp "$CARGO_TARGET_DIR/$target/release/xds-server" "$SOURCE"/{LICENSE,README.md,CHANGELOG.md} "$WORK/$name/"
  [[ $(file --brief "$WORK/$name/xds-server") == *static* ]] || die "the binary for $architecture is not static"
  cp -r "$SOURCE/packaging/systemd" "$SOURCE/packaging/sysusers.d" "$SOURCE/monitoring" "$WORK/$name/"
  cp -r "$WORK/docs/." "$WORK/$name/"
}

pack() {
  local architecture=$1 target=${TARGETS[$1]} name=xds-server-$VERSION-linux-$1
  step "$architecture: pack"
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$WORK" -cf - "$name" \
    | gzip -n9 >"$DIST/$name.tar.gz"
  (cd "$SOURCE" && cargo deb --package xds-server --variant release --target "$target" --no-build --no-strip --output "$DIST/")
}

main() {
  local is_check_only=false
  if [[ ${1:-} == --check ]]; then is_check_only=true; shift; fi
  [[ $# == 1 ]] || usage
  VERSION=$1
  cd "$(dirname "$0")/.."
  check_commit
  if $is_check_only; then echo "this commit may become $VERSION"; return; fi
  check_tools

  DIST=$PWD/dist/$VERSION
  [[ ! -e $DIST ]] || die "$DIST is there already"
  export CARGO_TARGET_DIR=$PWD/target/packages
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
  export SOURCE_DATE_EPOCH
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  SOURCE=$WORK/source
  mkdir -p "$SOURCE" "$DIST" "$WORK/docs"
  git archive HEAD | tar -x -C "$SOURCE"

  local host architecture
  host=$(dpkg --print-architecture)
  [[ -n ${TARGETS[$host]:-} ]] || die "run it on amd64 or arm64, not on $host"
  # This machine's own first: it prints the documentation of both.
  build "$host"
  generate_docs "$WORK/xds-server-$VERSION-linux-$host/xds-server" "$WORK/docs"
  cp -r "$WORK/docs/." "$WORK/xds-server-$VERSION-linux-$host/"
  cp -r "$WORK/docs" "$SOURCE/packaging/generated"
  for architecture in "${!TARGETS[@]}"; do
    [[ $architecture == "$host" ]] || build "$architecture"
    pack "$architecture"
  done

  step "SBOM"
  (cd "$SOURCE" && cargo cyclonedx --manifest-path server/Cargo.toml --format json --target "${TARGETS[$host]}" \
    --override-filename "xds-server-$VERSION.cdx")
  mv "$SOURCE/server/xds-server-$VERSION.cdx.json" "$DIST/"
  step "checksums"
  (cd "$DIST" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
}

main "$@"
