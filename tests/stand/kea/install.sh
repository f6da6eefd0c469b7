#!/bin/sh
# Makes the two generations of Kea that the tests need available:
#
#   kea2  Debian 12's Kea 2.2, which has no commands for reservations and subnets
#   kea3  a Kea whose free packages have them, which is 3.0 or newer
#
# A Kea that is installed on this machine is used unchanged. Otherwise the packages
# are unpacked, not installed, into ${XDG_CACHE_HOME:-$HOME/.cache}/vitistack:
# nothing is configured or started, and root is not needed. Existing files are
# kept. DEBIAN_MIRROR names another mirror than deb.debian.org.
set -eu

. "$(dirname "$0")/../apt.sh"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/vitistack

say() { printf 'kea: %s\n' "$*" >&2; }

die() {
	say "$*"
	exit 1
}

# hook ROOT NAME: whether the tree at ROOT has a hook library.
hook() { ls "$1"/usr/lib/*/kea/hooks/libdhcp_"$2".so >/dev/null 2>&1; }

has_kea2() { [ -x "$1/usr/sbin/kea-dhcp4" ] && [ -x "$1/usr/sbin/kea-ctrl-agent" ] && hook "$1" lease_cmds && ! hook "$1" host_cmds; }

has_kea3() { [ -x "$1/usr/sbin/kea-dhcp4" ] && hook "$1" host_cmds && hook "$1" subnet_cmds && hook "$1" lease_cmds; }

# unpack SUITE ROOT PACKAGE...: the packages with all that they depend on. A
# private apt with an empty status finds them, so that neither the packages nor
# the sources of this machine matter.
unpack() {
	suite=$1 root=$2
	shift 2
	work=$(mktemp -d "$cache/kea-apt.XXXXXX")
	mkdir "$work/root"
	private_apt "$work" "$suite"
	say "download $* of Debian $suite from $mirror"
	if apt-get -qq update >"$work/log" 2>&1 &&
		apt-get -qq -y --download-only install "$@" >>"$work/log" 2>&1; then
		say "unpack $(find "$work/archives" -name '*.deb' | wc -l) packages"
		for deb in "$work"/archives/*.deb; do
			dpkg-deb --fsys-tarfile "$deb" | tar -x --no-same-owner --no-same-permissions -C "$work/root"
		done
		rm -rf "$root"
		mv "$work/root" "$root"
		rm -rf "$work"
		return 0
	fi
	tail -n 5 "$work/log" >&2
	rm -rf "$work"
	return 1
}

if has_kea2 "" || has_kea2 "$cache/kea2"; then
	need2=
else
	need2=yes
fi
if has_kea3 "" || has_kea3 "$cache/kea3"; then
	need3=
else
	need3=yes
fi
if [ -z "$need2$need3" ]; then
	say "both generations are there"
	exit 0
fi

for tool in apt-get dpkg-deb tar; do
	command -v $tool >/dev/null || die "$tool is missing: run this on Debian or Ubuntu, or in a container of one"
done
[ -r $keyring ] || die "$keyring is missing: install the package debian-archive-keyring"
mkdir -p "$cache"

if [ -n "$need2" ]; then
	unpack bookworm "$cache/kea2" kea-dhcp4-server kea-ctrl-agent ||
		die "the packages of Kea 2.2 cannot be had: make $mirror reachable, or set DEBIAN_MIRROR to a mirror that has bookworm"
	has_kea2 "$cache/kea2" || die "Debian bookworm has no Kea 2.2 with a control agent any more"
fi
if [ -n "$need3" ]; then
	for suite in sid testing; do
		if unpack $suite "$cache/kea3" kea-dhcp4-server && has_kea3 "$cache/kea3"; then
			say "Kea 3 is there"
			exit 0
		fi
		say "Debian $suite has no Kea with the hooks host_cmds, subnet_cmds and lease_cmds"
	done
	rm -rf "$cache/kea3"
	die "the packages of Kea 3 cannot be had: make $mirror reachable, or set DEBIAN_MIRROR to a mirror that has sid"
fi
