#!/bin/sh
# Installs what nodes take from Debian: the container runtime, CNI plugins and network tools, and what a suite needs in
# addition: packages.sh [PROGRAM PACKAGE]... It does nothing if all are installed.
set -eu
missing=""
need() { # need PROGRAM PACKAGE
	command -v "$1" >/dev/null 2>&1 || ls "/usr/lib/cni/$1" >/dev/null 2>&1 || missing="$missing $2"
}
need runc runc
need host-local containernetworking-plugins
need nft nftables
need iptables iptables
need ipset ipset
need conntrack conntrack
need ip iproute2
need mount mount
need nsenter util-linux
need pgrep procps
need patch patch
while [ $# -gt 1 ]; do
	need "$1" "$2"
	shift 2
done
test -e /etc/ssl/certs/ca-certificates.crt || missing="$missing ca-certificates"
test -n "$missing" || exit 0
echo "Installing$missing ..."
if [ "$(id -u)" != 0 ]; then
	echo "Run as root: apt-get install --no-install-recommends$missing" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null
