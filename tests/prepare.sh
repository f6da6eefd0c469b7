#!/bin/sh
# Installs the servers and compilers that the tests run, from Debian's packages. It does nothing if all are installed.
set -eu
cd "$(dirname "$0")/.."

# Only root has the folder of servers in PATH.
PATH=$PATH:/usr/sbin:/sbin
missing=""
need() { # need PROGRAM PACKAGE...
  program=$1
  shift
  command -v "$program" >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/"$program" >/dev/null 2>&1 || missing="$missing $*"
}
need gcc gcc libc6-dev
need postgres postgresql
need mariadbd mariadb-server
need redis-server redis-server
need chromium chromium
need npm npm
need promtool prometheus
need udhcpc udhcpc
need ip iproute2
python3 -c 'import http.server' 2>/dev/null || missing="$missing python3"
if [ -n "$missing" ]; then
  echo "Installing$missing ..."
  if [ "$(id -u)" != 0 ]; then
    echo "Run as root: apt-get install --no-install-recommends$missing" >&2
    exit 1
  fi
  # RUNLEVEL=1 keeps the packages from starting their servers; the tests start their own.
  export RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # shellcheck disable=SC2086
  apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
sh tests/stand/kea/install.sh
sh tests/stand/cloudinit/install.sh

# The accessibility checker is downloaded once, and kept outside of the repository.
axe=4.14.1
folder="${XDG_CACHE_HOME:-$HOME/.cache}/vitistack/axe"
if ! grep -qs "\"version\": \"$axe\"" "$folder/node_modules/axe-core/package.json"; then
  echo "Installing axe-core $axe ..."
  mkdir -p "$folder"
  npm install --silent --no-audit --no-fund --prefix "$folder" "axe-core@$axe"
fi
